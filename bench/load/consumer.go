package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Members of consumer groups (KIP-848): the server assigns, and tells each member in its heartbeats.

// shareLimit is the longest time until all members of a group have their share.
const shareLimit = 170 * time.Second

// share is what a member has, as others may read it.
type share struct {
	epoch, partitions atomic.Int32
}

// beat sends a heartbeat, follows the answer, and returns whether the member has to acknowledge it.
func (m *member) beat(r *kmsg.ConsumerGroupHeartbeatRequest) (bool, error) {
	r.Version = 1
	r.Group, r.MemberID, r.MemberEpoch = m.group, m.id, m.generation
	answer, err := m.call(r)
	if err != nil {
		return false, err
	}
	reply := answer.(*kmsg.ConsumerGroupHeartbeatResponse)
	if reply.ErrorCode != 0 {
		return false, fmt.Errorf("consumer heartbeat: error code %d", reply.ErrorCode)
	}
	m.generation = reply.MemberEpoch
	if reply.Assignment == nil {
		return false, nil
	}
	m.owned = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for _, t := range reply.Assignment.Topics {
		owned := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		owned.TopicID, owned.Partitions = t.TopicID, t.Partitions
		m.owned = append(m.owned, owned)
	}
	return true, nil
}

// joining is the first heartbeat of a member.
func joining(topic string) *kmsg.ConsumerGroupHeartbeatRequest {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.RebalanceTimeoutMillis = 60_000
	r.SubscribedTopicNames = []string{topic}
	r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return r
}

// follow heartbeats until the group is done: at once when there is something to acknowledge, and
// otherwise after a pause.
func (m *member) follow(topic string, has *share, pause time.Duration, done *atomic.Bool) error {
	m.generation = 0
	r := joining(topic)
	for !done.Load() {
		told, err := m.beat(r)
		if err != nil {
			return err
		}
		var count int
		for _, t := range m.owned {
			count += len(t.Partitions)
		}
		has.partitions.Store(int32(count))
		has.epoch.Store(m.generation)
		r = kmsg.NewPtrConsumerGroupHeartbeatRequest()
		if told {
			r.Topics = m.owned
			continue
		}
		time.Sleep(pause)
	}
	return nil
}

// isShared returns whether all have the same epoch, and together all partitions, shared evenly.
func isShared(shares []share, partitions int) bool {
	first, sum := shares[0].epoch.Load(), 0
	least, most := partitions, 0
	for i := range shares {
		count := int(shares[i].partitions.Load())
		least, most, sum = min(least, count), max(most, count), sum+count
		if first == 0 || shares[i].epoch.Load() != first {
			return false
		}
	}
	return sum == partitions && most-least <= 1
}

// shareOut lets members join one group, and waits until each owns its share. It returns the time from
// the first heartbeat.
func shareOut(members []*member, o order) (time.Duration, error) {
	shares := make([]share, len(members))
	var done atomic.Bool
	var failed error
	var all sync.WaitGroup
	pause := time.Duration(o.Every * float64(time.Second))
	start := time.Now()
	all.Go(func() {
		failed = each(members, func(i int, m *member) error {
			err := m.follow(o.Topic, &shares[i], pause, &done)
			if err != nil {
				done.Store(true)
			}
			return err
		})
	})
	for !done.Load() && !isShared(shares, o.Partitions) {
		if time.Since(start) > shareLimit {
			failed = errors.New("some members have no share")
			break
		}
		time.Sleep(time.Millisecond)
	}
	took := time.Since(start)
	done.Store(true)
	all.Wait()
	return took, failed
}

// openConsumers makes one group of members that have their share.
func openConsumers(o order) ([]*member, time.Duration, error) {
	name := fmt.Sprintf("%s-%d-%d", o.What, os.Getpid(), opened.Add(1))
	members, err := connect(name, o.Members)
	if err != nil {
		return nil, 0, err
	}
	for i, m := range members {
		m.id = fmt.Sprintf("load-%08d-0123-4567-89ab-cdef01234567", i)
	}
	took, err := shareOut(members, o)
	return members, took, err
}

// openTogether makes groups, some at a time, because each waits for its interval. The time is that of
// the group that took longest.
func openTogether(o order) (any, error) {
	before := usage(*pid)
	var mu sync.Mutex
	var first error
	var all []*member
	var longest time.Duration
	var waits sync.WaitGroup
	places := make(chan struct{}, 64)
	for range o.Groups {
		places <- struct{}{}
		waits.Go(func() {
			defer func() { <-places }()
			members, took, err := openConsumers(o)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, members...)
			longest = max(longest, took)
			if first == nil {
				first = err
			}
		})
	}
	waits.Wait()
	pools[o.What] = all
	after := usage(*pid)
	return map[string]any{
		"members": len(all),
		"form_ms": float64(longest.Microseconds()) / 1000,
		"cpu_ms":  (after.User + after.System - before.User - before.System) * 1000,
	}, first
}

// closePool lets the members of a pool leave, and closes their connections.
func closePool(name string) (any, error) {
	err := each(pools[name], func(_ int, m *member) error {
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		m.generation = -1
		_, err := m.beat(r)
		_ = m.conn.Close()
		return err
	})
	delete(pools, name)
	return map[string]any{}, err
}

// consumerHeartbeat is a heartbeat that changes nothing.
func (m *member) consumerHeartbeat() kmsg.Request {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version = 1
	r.Group, r.MemberEpoch, r.MemberID = m.group, m.generation, m.id
	return r
}
