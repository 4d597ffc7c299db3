// The Go clients of the Kafka world against a server: each scenario is one life of one client.
//
// Started as `conformance HOST:PORT` (as `conformance members HOST:PORT`: see members.go). It says first which versions it holds, then reads commands
// from stdin, {"id": 1, "scenario": "kafka-go/heartbeats", "group": "g"}, runs them side by side
// and writes one line for each, {"id": 1, "ok": true} or {"id": 1, "ok": false, "error": "..."}.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// patience is how long a scenario waits for anything before it fails; nothing is expected to take it.
const patience = 90 * time.Second

// sessionTimeout is Kafka's least by default.
const sessionTimeout = 6 * time.Second

var scenarios = map[string]func(*T){
	"kafka-go/life-cycle":        kafkaGoLifeCycle,
	"kafka-go/heartbeats":        kafkaGoHeartbeats,
	"kafka-go/partition-watcher": kafkaGoPartitionWatcher,
	"kafka-go/range":             kafkaGoRange,
	"kafka-go/round-robin":       kafkaGoRoundRobin,
	"kafka-go/leave":             kafkaGoLeave,
	"kafka-go/stale-commit":      kafkaGoStaleCommit,
	"kafka-go/reader":            kafkaGoReader,
	"kafka-go/client":            kafkaGoClient,
	"kafka-go/start-offset":      kafkaGoStartOffset,
	"kafka-go/two-topics":        kafkaGoTwoTopics,
	"kafka-go/absent-topic":      kafkaGoAbsentTopic,
	"kafka-go/auto-create":       kafkaGoAutoCreate,
	"kafka-go/first-join":        kafkaGoFirstJoin,
	"kafka-go/rebalance-timeout": kafkaGoRebalanceTimeout,
	"kafka-go/generation-ended":  kafkaGoGenerationEnded,
	"kafka-go/retention-time":    kafkaGoRetentionTime,
	"kafka-go/user-data":         kafkaGoUserData,
	"kafka-go/errors":            kafkaGoErrors,
	"kafka-go/store-away":        kafkaGoStoreAway,
	"kafka-go/group-limit":       kafkaGoGroupLimit,

	"kafka-go/authorization-errors": kafkaGoAuthorizationErrors,

	"shopify-1.8/offset-manager":  shopifyOffsetManager,
	"shopify-1.8/group-requests":  shopifyGroupRequests,
	"shopify-1.8/group-errors":    shopifyGroupErrors,
	"shopify-1.8/closed-versions": shopifyClosedVersions,
	"shopify-1.8/store-away":      shopifyStoreAway,
	"shopify-1.8/group-limit":     shopifyGroupLimit,
	"shopify-1.8/large-group":     shopifyLargeGroup,
	"shopify-1.8/timestamp":       shopifyTimestamp,

	"shopify-1.8/authorization-errors": shopifyAuthorizationErrors,

	"sarama-0.8.2/offset-manager":      saramaOffsetManagerOld,
	"sarama-0.11/consumer-group":       saramaConsumerGroup011,
	"sarama-2.4/consumer-group":        saramaConsumerGroup24,
	"sarama-newest/consumer-group":     saramaConsumerGroupNewest,
	"sarama-newest/cooperative-sticky": saramaCooperativeSticky,
	"sarama-newest/static-member":      saramaStaticMember,
	"sarama-newest/offset-manager":     saramaOffsetManagerNewest,
	"sarama-newest/cluster-admin":      saramaClusterAdmin,
	"sarama-newest/group-configs":      saramaGroupConfigs,
	"sarama-newest/consumer":           saramaConsumer,
	"sarama-newest/producer":           saramaProducer,
	"franz-go/life-cycle":              franzLifeCycle,
	"franz-go/cooperative-sticky":      franzCooperativeSticky,
	"franz-go/static-member":           franzStaticMember,
	"franz-go/regex":                   franzRegex,
	"franz-go/monotonic-commit":        franzMonotonicCommit,
	"kadm/groups":                      kadmGroups,
	"kadm/offsets":                     kadmOffsets,
	"kadm/leave":                       kadmLeave,
	"kadm/topics":                      kadmTopics,
}

// T is what a scenario is given: a server, and a group of its own.
type T struct {
	Bootstrap string
	Group     string
	ctx       context.Context
}

type failure struct{ text string }

// Failf ends the scenario.
func (t *T) Failf(format string, args ...any) { panic(failure{fmt.Sprintf(format, args...)}) }

// Must ends the scenario unless err is nil.
func (t *T) Must(err error, doing string) {
	if err != nil {
		t.Failf("%s: %v", doing, err)
	}
}

// Equal ends the scenario unless both print alike (maps are printed in order).
func (t *T) Equal(got, want any, what string) {
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Failf("%s: got %s, want %s", what, g, w)
	}
}

// Eventually asks again until the answer is yes.
func (t *T) Eventually(what string, holds func() bool) {
	for !holds() {
		select {
		case <-t.ctx.Done():
			t.Failf("never came: %s", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Kgo makes a franz-go client.
func (t *T) Kgo(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(t.Bootstrap)}, options...)...)
	t.Must(err, "kgo.NewClient")
	return client
}

// Admin makes an administrator of its own; the caller closes it.
func (t *T) Admin() *kadm.Client { return kadm.NewClient(t.Kgo()) }

// Topic creates a topic of the scenario's own and waits until the server shows it.
func (t *T) Topic(suffix string, partitions int32) string {
	admin := t.Admin()
	defer admin.Close()
	topic := t.Group + suffix
	created, err := admin.CreateTopic(t.ctx, partitions, 1, nil, topic)
	t.Must(err, "create "+topic)
	t.Must(created.Err, "create "+topic)
	t.Eventually("topic "+topic, func() bool {
		shown, err := admin.ListTopics(t.ctx, topic)
		return err == nil && len(shown[topic].Partitions) == int(partitions)
	})
	return topic
}

// Grow lets a partition end at so many records. A broker wants them written; a server that keeps no
// records refuses them, and lets a partition end where the largest commit says.
func (t *T) Grow(topic string, partition int32, count int) {
	client := t.Kgo(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	for range count {
		record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte("x")}
		err := client.ProduceSync(t.ctx, record).FirstErr()
		if errors.Is(err, kerr.PolicyViolation) {
			return
		}
		t.Must(err, "produce")
	}
}

// Described is what DescribeGroups says of a group.
func (t *T) Described(group string) kadm.DescribedGroup {
	admin := t.Admin()
	defer admin.Close()
	described, err := admin.DescribeGroups(t.ctx, group)
	t.Must(err, "describe "+group)
	return described[group]
}

// State waits for a group to be in a state.
func (t *T) State(group, state string) {
	t.Eventually(group+" is "+state, func() bool { return t.Described(group).State == state })
}

// Committed is what the coordinator has of one topic: partition to offset.
func (t *T) Committed(group, topic string) map[int32]int64 {
	admin := t.Admin()
	defer admin.Close()
	offsets, err := admin.FetchOffsets(t.ctx, group)
	t.Must(err, "fetch offsets of "+group)
	found := map[int32]int64{}
	for partition, offset := range offsets[topic] {
		found[partition] = offset.At
	}
	return found
}

func run(bootstrap, scenario, group string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failure:
			err = fmt.Errorf("%s", ended.text)
		default:
			err = fmt.Errorf("panic: %v\n%s", ended, debug.Stack())
		}
	}()
	body, known := scenarios[scenario]
	if !known {
		return fmt.Errorf("no scenario %q", scenario)
	}
	body(&T{Bootstrap: bootstrap, Group: group, ctx: ctx})
	return nil
}

func versions() map[string]string {
	found := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			found[module.Path] = strings.TrimPrefix(module.Version, "v")
		}
	}
	return found
}

func main() {
	if os.Args[1] == "members" {
		hostMembers(os.Args[2])
		return
	}
	var writing sync.Mutex
	say := func(line map[string]any) {
		writing.Lock()
		defer writing.Unlock()
		if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
			os.Exit(1) // nobody reads any more
		}
	}
	say(map[string]any{"versions": versions()})
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		var command struct {
			ID              int
			Scenario, Group string
		}
		if err := json.Unmarshal(commands.Bytes(), &command); err != nil {
			panic(err)
		}
		go func() {
			answer := map[string]any{"id": command.ID, "ok": true}
			if err := run(os.Args[1], command.Scenario, command.Group); err != nil {
				answer["ok"], answer["error"] = false, err.Error()
			}
			say(answer)
		}()
	}
}
