// kazoo-go, driven from outside: one JSON object a line orders one call, one line answers it.
//
// The only argument is a connection string. A watch is answered with what stands there, and a
// second line with the same id says that it has fired.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/samuel/go-zookeeper/zk"
	"github.com/wvanbergen/kazoo-go"
)

type order struct {
	ID        int      `json:"id"`
	Call      string   `json:"call"`
	Group     string   `json:"group"`
	Instance  string   `json:"instance"`
	Topic     string   `json:"topic"`
	Topics    []string `json:"topics"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Data      string   `json:"data"`
}

type answer struct {
	ID    int    `json:"id"`
	Value any    `json:"value"`
	Error string `json:"error,omitempty"`
	Fired bool   `json:"fired,omitempty"`
}

type host struct {
	registry *kazoo.Kazoo
	output   *json.Encoder
	lock     sync.Mutex
}

func (h *host) say(a answer) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if err := h.output.Encode(a); err != nil {
		log.Fatal(err)
	}
}

func (h *host) watch(id int, fired <-chan zk.Event) {
	if fired == nil {
		return
	}
	go func() {
		<-fired
		h.say(answer{ID: id, Fired: true})
	}()
}

func names(groups kazoo.ConsumergroupList) []string {
	sort.Sort(groups)
	found := []string{}
	for _, each := range groups {
		found = append(found, each.Name)
	}
	return found
}

func ids(instances kazoo.ConsumergroupInstanceList) []string {
	sort.Sort(instances)
	found := []string{}
	for _, each := range instances {
		found = append(found, each.ID)
	}
	return found
}

func id(instance *kazoo.ConsumergroupInstance) any {
	if instance == nil {
		return nil
	}
	return instance.ID
}

func (h *host) do(o order) (any, error) {
	group := h.registry.Consumergroup(o.Group)
	instance := group.Instance(o.Instance)
	switch o.Call {
	case "Consumergroups":
		groups, err := h.registry.Consumergroups()
		return names(groups), err
	case "ConsumergroupList.Find":
		groups, err := h.registry.Consumergroups()
		return groups.Find(o.Group) != nil, err
	case "Exists":
		return group.Exists()
	case "Create":
		return nil, group.Create()
	case "Delete":
		return nil, group.Delete()
	case "Instances":
		instances, err := group.Instances()
		return ids(instances), err
	case "ConsumergroupInstanceList.Find":
		instances, err := group.Instances()
		return id(instances.Find(o.Instance)), err
	case "WatchInstances":
		instances, fired, err := group.WatchInstances()
		h.watch(o.ID, fired)
		return ids(instances), err
	case "NewInstance":
		return group.NewInstance().ID, nil
	case "PartitionOwner":
		owner, err := group.PartitionOwner(o.Topic, o.Partition)
		return id(owner), err
	case "WatchPartitionOwner":
		owner, fired, err := group.WatchPartitionOwner(o.Topic, o.Partition)
		h.watch(o.ID, fired)
		return id(owner), err
	case "Registered":
		return instance.Registered()
	case "Registration":
		return instance.Registration()
	case "WatchRegistration":
		registration, fired, err := instance.WatchRegistration()
		h.watch(o.ID, fired)
		return registration, err
	case "Register":
		return nil, instance.Register(o.Topics)
	case "RegisterWithSubscription":
		return nil, instance.RegisterWithSubscription([]byte(o.Data))
	case "UpdateRegistration":
		return nil, instance.UpdateRegistration(o.Topics)
	case "Deregister":
		return nil, instance.Deregister()
	case "ClaimPartition":
		return nil, instance.ClaimPartition(o.Topic, o.Partition)
	case "ReleasePartition":
		return nil, instance.ReleasePartition(o.Topic, o.Partition)
	case "Topics":
		topics, err := group.Topics()
		found := []string{}
		for _, each := range topics {
			found = append(found, each.Name)
		}
		return found, err
	case "CommitOffset":
		return nil, group.CommitOffset(o.Topic, o.Partition, o.Offset)
	case "FetchOffset":
		return group.FetchOffset(o.Topic, o.Partition)
	case "FetchAllOffsets":
		return group.FetchAllOffsets()
	case "ResetOffsets":
		return nil, group.ResetOffsets()
	}
	return nil, fmt.Errorf("no such call: %s", o.Call)
}

func name(err error) string {
	switch err {
	case nil:
		return ""
	case kazoo.ErrRunningInstances:
		return "ErrRunningInstances"
	case kazoo.ErrInstanceAlreadyRegistered:
		return "ErrInstanceAlreadyRegistered"
	case kazoo.ErrInstanceNotRegistered:
		return "ErrInstanceNotRegistered"
	case kazoo.ErrPartitionClaimedByOther:
		return "ErrPartitionClaimedByOther"
	case kazoo.ErrPartitionNotClaimed:
		return "ErrPartitionNotClaimed"
	}
	return err.Error()
}

func main() {
	config := kazoo.NewConfig()
	config.Timeout = 6 * time.Second
	config.Logger = log.New(io.Discard, "", 0)
	registry, err := kazoo.NewKazooFromConnectionString(os.Args[1], config)
	if err != nil {
		log.Fatal(err)
	}
	h := &host{registry: registry, output: json.NewEncoder(os.Stdout)}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		var o order
		if err := json.Unmarshal(input.Bytes(), &o); err != nil {
			log.Fatal(err)
		}
		value, err := h.do(o)
		h.say(answer{ID: o.ID, Value: value, Error: name(err)})
	}
	if err := registry.Close(); err != nil {
		log.Fatal(err)
	}
}
