package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

// kafkaGoMember is a kafka.ConsumerGroup whose generations come one after the other through next.
// It sends JoinGroup v1, SyncGroup v0, Heartbeat v0, OffsetCommit v2 and OffsetFetch v1, whatever
// ApiVersions says.
type kafkaGoMember struct {
	t     *T
	group *kafka.ConsumerGroup
}

func (t *T) kafkaGoJoin(config kafka.ConsumerGroupConfig) *kafkaGoMember {
	config.ID = t.Group
	config.Brokers = []string{t.Bootstrap}
	config.SessionTimeout = sessionTimeout
	config.HeartbeatInterval = 500 * time.Millisecond
	if config.RebalanceTimeout == 0 {
		config.RebalanceTimeout = 30 * time.Second
	}
	config.JoinGroupBackoff = 200 * time.Millisecond
	group, err := kafka.NewConsumerGroup(config)
	t.Must(err, "NewConsumerGroup")
	return &kafkaGoMember{t, group}
}

// next waits for the generation after this one.
func (m *kafkaGoMember) next() *kafka.Generation {
	for {
		generation, err := m.group.Next(m.t.ctx)
		if err == nil {
			return generation
		}
		// the client itself tells its user to call Next again
		if m.t.ctx.Err() != nil || errors.Is(err, kafka.ErrGroupClosed) {
			m.t.Failf("Next: %v", err)
		}
	}
}

// nextWith waits for a generation that assigns so many partitions of a topic.
func (m *kafkaGoMember) nextWith(topic string, count int) *kafka.Generation {
	for {
		generation := m.next()
		if len(generation.Assignments[topic]) == count {
			return generation
		}
	}
}

func (m *kafkaGoMember) leave() { m.t.Must(m.group.Close(), "Close") }

func kafkaGoPartitions(generation *kafka.Generation, topic string) []int {
	var ids []int
	for _, assigned := range generation.Assignments[topic] {
		ids = append(ids, assigned.ID)
	}
	sort.Ints(ids)
	return ids
}

// ended tells when the generation's own context ends.
func ended(generation *kafka.Generation) <-chan struct{} {
	over := make(chan struct{})
	generation.Start(func(ctx context.Context) {
		<-ctx.Done()
		close(over)
	})
	return over
}

func kafkaGoLifeCycle(t *T) {
	topic := t.Topic("", 4)
	config := kafka.ConsumerGroupConfig{Topics: []string{topic}, StartOffset: kafka.FirstOffset}
	member := t.kafkaGoJoin(config)
	generation := member.next()
	t.Equal(kafkaGoPartitions(generation, topic), []int{0, 1, 2, 3}, "assigned")
	t.Equal(generation.Assignments[topic][0].Offset, kafka.FirstOffset, "offset before any commit")
	t.Equal(t.Described(t.Group).State, "Stable", "state")
	t.Equal(t.Described(t.Group).Members[0].MemberID, generation.MemberID, "member id")
	t.Must(generation.CommitOffsets(map[string]map[int]int64{topic: {0: 42, 3: 7}}), "commit")
	member.leave()
	t.State(t.Group, "Empty")

	back := t.kafkaGoJoin(config)
	offsets := map[int]int64{}
	for _, assigned := range back.next().Assignments[topic] {
		offsets[assigned.ID] = assigned.Offset
	}
	want := map[int]int64{0: 42, 1: kafka.FirstOffset, 2: kafka.FirstOffset, 3: 7}
	t.Equal(offsets, want, "offsets after coming back")
	back.leave()
}

func kafkaGoHeartbeats(t *T) {
	topic := t.Topic("", 2)
	member := t.kafkaGoJoin(kafka.ConsumerGroupConfig{Topics: []string{topic}})
	generation := member.next()
	select {
	case <-ended(generation):
		t.Failf("the generation ended although its member heartbeats")
	case <-time.After(sessionTimeout + 2*time.Second):
	}
	t.Must(generation.CommitOffsets(map[string]map[int]int64{topic: {0: 1}}), "commit")
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{0: 1}, "committed")
	member.leave()
}

func kafkaGoPartitionWatcher(t *T) {
	topic := t.Topic("", 2)
	member := t.kafkaGoJoin(kafka.ConsumerGroupConfig{
		Topics:                 []string{topic},
		WatchPartitionChanges:  true,
		PartitionWatchInterval: 300 * time.Millisecond,
	})
	first := member.next()
	t.Equal(kafkaGoPartitions(first, topic), []int{0, 1}, "assigned")
	over := ended(first)
	client := &kafka.Client{Addr: kafka.TCP(t.Bootstrap)}
	grown, err := client.CreatePartitions(t.ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 5}},
	})
	t.Must(err, "CreatePartitions")
	t.Must(grown.Errors[topic], "CreatePartitions")
	<-over
	second := member.nextWith(topic, 5)
	t.Equal(second.ID > first.ID, true, "a later generation")
	member.leave()
}

// kafkaGoTwo lets two members share a topic of three partitions by one balancer.
func kafkaGoTwo(t *T, balancer kafka.GroupBalancer, shares string) {
	topic := t.Topic("", 3)
	config := kafka.ConsumerGroupConfig{
		Topics:         []string{topic},
		GroupBalancers: []kafka.GroupBalancer{balancer},
	}
	one := t.kafkaGoJoin(config)
	one.nextWith(topic, 3)
	two := t.kafkaGoJoin(config)
	// both may see short generations on the way: they agree on one in the end
	generations := map[*kafkaGoMember]*kafka.Generation{one: one.next(), two: two.next()}
	for generations[one].ID != generations[two].ID {
		if generations[one].ID < generations[two].ID {
			generations[one] = one.next()
		} else {
			generations[two] = two.next()
		}
	}
	got := []string{
		fmt.Sprint(kafkaGoPartitions(generations[one], topic)),
		fmt.Sprint(kafkaGoPartitions(generations[two], topic)),
	}
	sort.Strings(got)
	t.Equal(got, shares, "shares")
	t.Equal(t.Described(t.Group).Protocol, balancer.ProtocolName(), "protocol")
	one.leave()
	two.leave()
}

func kafkaGoRange(t *T)      { kafkaGoTwo(t, kafka.RangeGroupBalancer{}, "[[0] [1 2]]") }
func kafkaGoRoundRobin(t *T) { kafkaGoTwo(t, kafka.RoundRobinGroupBalancer{}, "[[0 2] [1]]") }

func kafkaGoLeave(t *T) {
	topic := t.Topic("", 4)
	config := kafka.ConsumerGroupConfig{Topics: []string{topic}}
	one := t.kafkaGoJoin(config)
	one.nextWith(topic, 4)
	two := t.kafkaGoJoin(config)
	two.nextWith(topic, 2)
	one.nextWith(topic, 2)
	// a member that says goodbye is not waited for: its session need not end
	one.leave()
	two.nextWith(topic, 4)
	t.Equal(len(t.Described(t.Group).Members), 1, "members")
	two.leave()
	t.State(t.Group, "Empty")
}

func kafkaGoStaleCommit(t *T) {
	topic := t.Topic("", 4)
	config := kafka.ConsumerGroupConfig{Topics: []string{topic}}
	one := t.kafkaGoJoin(config)
	stale := one.nextWith(topic, 4)
	t.Must(stale.CommitOffsets(map[string]map[int]int64{topic: {0: 10}}), "commit")
	two := t.kafkaGoJoin(config)
	one.nextWith(topic, 2)
	if err := stale.CommitOffsets(map[string]map[int]int64{topic: {0: 99}}); err == nil {
		t.Failf("a generation that is over has committed")
	}
	// its own connection is closed by now: what it had in flight would be told this
	client := &kafka.Client{Addr: kafka.TCP(t.Bootstrap)}
	answer, err := client.OffsetCommit(t.ctx, &kafka.OffsetCommitRequest{
		GroupID: t.Group, GenerationID: int(stale.ID), MemberID: stale.MemberID,
		Topics: map[string][]kafka.OffsetCommit{topic: {{Partition: 0, Offset: 99}}},
	})
	t.Must(err, "OffsetCommit")
	if failed := answer.Topics[topic][0].Error; !errors.Is(failed, kafka.IllegalGeneration) {
		t.Failf("commit of an old generation: %v", failed)
	}
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{0: 10}, "committed")
	one.leave()
	two.leave()
}

func kafkaGoReader(t *T) {
	topic := t.Topic("", 1)
	config := kafka.ReaderConfig{
		Brokers: []string{t.Bootstrap}, GroupID: t.Group, Topic: topic, SessionTimeout: sessionTimeout,
		HeartbeatInterval: time.Second, StartOffset: kafka.FirstOffset, MaxWait: 500 * time.Millisecond,
	}
	reader := kafka.NewReader(config)
	// nothing to read: the reader waits as a member of its group, until its user gives up
	ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
	defer cancel()
	if _, err := reader.FetchMessage(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Failf("FetchMessage on an empty topic: %v", err)
	}
	t.State(t.Group, "Stable")
	message := kafka.Message{Topic: topic, Partition: 0, Offset: 4}
	t.Must(reader.CommitMessages(t.ctx, message), "CommitMessages")
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{0: 5}, "committed: one past the message")
	t.Must(reader.Close(), "Close")
	t.State(t.Group, "Empty")
}

func kafkaGoClient(t *T) {
	topic := t.Topic("", 2)
	client := &kafka.Client{Addr: kafka.TCP(t.Bootstrap), Timeout: 20 * time.Second}
	committed, err := client.OffsetCommit(t.ctx, &kafka.OffsetCommitRequest{
		GroupID: t.Group, GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{
			topic: {{Partition: 0, Offset: 11, Metadata: "by hand"}, {Partition: 1, Offset: 12}},
		},
	})
	t.Must(err, "OffsetCommit")
	for _, partition := range committed.Topics[topic] {
		t.Must(partition.Error, "OffsetCommit")
	}
	fetched, err := client.OffsetFetch(t.ctx, &kafka.OffsetFetchRequest{
		GroupID: t.Group, Topics: map[string][]int{topic: {0}},
	})
	t.Must(err, "OffsetFetch")
	t.Must(fetched.Error, "OffsetFetch")
	t.Equal(fetched.Topics[topic][0].CommittedOffset, 11, "fetched")
	t.Equal(fetched.Topics[topic][0].Metadata, "by hand", "metadata")

	listed, err := client.ListGroups(t.ctx, &kafka.ListGroupsRequest{})
	t.Must(err, "ListGroups")
	shown := false
	for _, group := range listed.Groups {
		shown = shown || group.GroupID == t.Group
	}
	t.Equal(shown, true, "listed")
	described, err := client.DescribeGroups(t.ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{t.Group}})
	t.Must(err, "DescribeGroups")
	t.Equal(described.Groups[0].GroupState, "Empty", "state")

	deleted, err := client.OffsetDelete(t.ctx, &kafka.OffsetDeleteRequest{
		GroupID: t.Group, Topics: map[string][]int{topic: {0}},
	})
	t.Must(err, "OffsetDelete")
	t.Must(deleted.Error, "OffsetDelete")
	t.Must(deleted.Topics[topic][0].Error, "OffsetDelete")
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{1: 12}, "left after OffsetDelete")
	gone, err := client.DeleteGroups(t.ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{t.Group}})
	t.Must(err, "DeleteGroups")
	t.Must(gone.Errors[t.Group], "DeleteGroups")
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{}, "left after DeleteGroups")
}
