package main

import (
	"context"
	"errors"
	"sort"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

// kafkaGoStartOffset has commits on one partition of two: the other begins where StartOffset says.
func kafkaGoStartOffset(t *T) {
	topic := t.Topic("", 2)
	for _, start := range []int64{kafka.LastOffset, kafka.FirstOffset} {
		member := t.kafkaGoJoin(kafka.ConsumerGroupConfig{Topics: []string{topic}, StartOffset: start})
		generation := member.nextWith(topic, 2)
		t.Must(generation.CommitOffsets(map[string]map[int]int64{topic: {0: 5}}), "commit")
		member.leave()
		again := t.kafkaGoJoin(kafka.ConsumerGroupConfig{Topics: []string{topic}, StartOffset: start})
		offsets := map[int]int64{}
		for _, assigned := range again.nextWith(topic, 2).Assignments[topic] {
			offsets[assigned.ID] = assigned.Offset
		}
		t.Equal(offsets, map[int]int64{0: 5, 1: start}, "places to begin")
		again.leave()
	}
}

func kafkaGoTwoTopics(t *T) {
	orders, clicks := t.Topic("-orders", 3), t.Topic("-clicks", 2)
	member := t.kafkaGoJoin(kafka.ConsumerGroupConfig{Topics: []string{orders, clicks}})
	generation := member.nextWith(orders, 3)
	t.Equal(kafkaGoPartitions(generation, clicks), []int{0, 1}, "assigned of the second topic")
	t.Must(generation.CommitOffsets(map[string]map[int]int64{orders: {2: 8}, clicks: {0: 9}}), "commit")
	t.Equal(t.Committed(t.Group, orders), map[int32]int64{2: 8}, "committed of the first topic")
	t.Equal(t.Committed(t.Group, clicks), map[int32]int64{0: 9}, "committed of the second topic")
	member.leave()
}

// kafkaGoAbsentTopic is subscribed to beside one that exists.
func kafkaGoAbsentTopic(t *T) {
	topic := t.Topic("", 2)
	absent := t.Group + "-absent"
	config := kafka.ConsumerGroupConfig{Topics: []string{topic, absent}}
	member := t.kafkaGoJoin(config)
	generation := member.next()
	// the leader asks for the partitions of both at once, and takes the error for having none
	t.Equal(generation.Assignments, map[string][]kafka.PartitionAssignment{topic: {}, absent: {}}, "assigned")
	member.leave()
	t.Equal(t.Topic("-absent", 1), absent, "created late")
	back := t.kafkaGoJoin(config)
	t.Equal(kafkaGoPartitions(back.nextWith(absent, 1), topic), []int{0, 1}, "assigned once both exist")
	back.leave()
}

// kafkaGoAutoCreate subscribes to a topic that its server makes when it is asked for.
func kafkaGoAutoCreate(t *T) {
	topic := t.Group + "-made"
	member := t.kafkaGoJoin(kafka.ConsumerGroupConfig{Topics: []string{topic}})
	for len(member.next().Assignments[topic]) == 0 {
		t.Must(member.group.Close(), "Close") // who asked first may be told that there is none yet
		member = t.kafkaGoJoin(kafka.ConsumerGroupConfig{Topics: []string{topic}})
	}
	member.leave()
}

// kafkaGoFirstJoin has two members that come within the delay of an empty group.
func kafkaGoFirstJoin(t *T) {
	topic := t.Topic("", 2)
	config := kafka.ConsumerGroupConfig{Topics: []string{topic}}
	one, two := t.kafkaGoJoin(config), t.kafkaGoJoin(config)
	for _, member := range []*kafkaGoMember{one, two} {
		first := member.next()
		t.Equal([]any{first.ID, len(first.Assignments[topic])}, []any{1, 1}, "first generation")
	}
	one.leave()
	two.leave()
}

// kafkaGoRebalanceTimeout is a member that does not come back in time: the group goes on without it.
func kafkaGoRebalanceTimeout(t *T) {
	topic := t.Topic("", 4)
	config := kafka.ConsumerGroupConfig{Topics: []string{topic}, RebalanceTimeout: 2 * time.Second}
	slow := t.kafkaGoJoin(config)
	generation := slow.nextWith(topic, 4)
	ready := make(chan struct{})
	generation.Start(func(context.Context) { <-ready }) // heeds no end of its generation
	quick := t.kafkaGoJoin(config)
	quick.nextWith(topic, 4)
	t.Equal(len(t.Described(t.Group).Members), 1, "members")
	close(ready)
	again := slow.nextWith(topic, 2)
	t.Equal(again.MemberID != generation.MemberID, true, "a new member id")
	quick.nextWith(topic, 2)
	slow.leave()
	quick.leave()
}

// kafkaGoGenerationEnded is what code that Generation.Start runs sees of the end of its generation.
func kafkaGoGenerationEnded(t *T) {
	topic := t.Topic("", 4)
	config := kafka.ConsumerGroupConfig{Topics: []string{topic}}
	one := t.kafkaGoJoin(config)
	generation := one.nextWith(topic, 4)
	reason := make(chan error, 1)
	generation.Start(func(ctx context.Context) {
		<-ctx.Done()
		reason <- ctx.Err()
	})
	two := t.kafkaGoJoin(config)
	if err := <-reason; !errors.Is(err, kafka.ErrGenerationEnded) {
		t.Failf("the context of a generation that a rebalance ended: %v", err)
	}
	two.nextWith(topic, 2)
	// a function that returns ends its generation too: the member joins the next one
	before := one.nextWith(topic, 2)
	before.Start(func(context.Context) {})
	after := one.next()
	t.Equal(after.ID > before.ID, true, "a later generation")
	two.leave()
	one.leave()
	if _, err := one.group.Next(t.ctx); !errors.Is(err, kafka.ErrGroupClosed) {
		t.Failf("Next after Close: %v", err)
	}
}

// kafkaGoRetentionTime commits with a retention of its own, which is over when the group is empty.
func kafkaGoRetentionTime(t *T) {
	topic := t.Topic("", 1)
	commit := func(offset int64, retention time.Duration) {
		member := t.kafkaGoJoin(kafka.ConsumerGroupConfig{
			Topics: []string{topic}, RetentionTime: retention,
		})
		generation := member.nextWith(topic, 1)
		t.Must(generation.CommitOffsets(map[string]map[int]int64{topic: {0: offset}}), "commit")
		member.leave()
		t.State(t.Group, "Empty")
	}
	commit(11, time.Hour)
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{0: 11}, "committed for an hour")
	commit(12, time.Millisecond)
	t.Eventually("the commit of a millisecond expires", func() bool {
		return len(t.Committed(t.Group, topic)) == 0
	})
}

// kafkaGoSpy is a balancer with user data that keeps what the leader was given.
type kafkaGoSpy struct {
	kafka.RangeGroupBalancer
	data string
	lock *sync.Mutex
	seen map[string]bool
}

func (s kafkaGoSpy) ProtocolName() string      { return "spy" }
func (s kafkaGoSpy) UserData() ([]byte, error) { return []byte(s.data), nil }

func (s kafkaGoSpy) AssignGroups(members []kafka.GroupMember, partitions []kafka.Partition) kafka.GroupMemberAssignments {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, member := range members {
		s.seen[string(member.UserData)] = true
	}
	return s.RangeGroupBalancer.AssignGroups(members, partitions)
}

func kafkaGoUserData(t *T) {
	topic := t.Topic("", 2)
	spy := kafkaGoSpy{lock: &sync.Mutex{}, seen: map[string]bool{}}
	join := func(data string) *kafkaGoMember {
		spy.data = data
		return t.kafkaGoJoin(kafka.ConsumerGroupConfig{
			Topics: []string{topic}, GroupBalancers: []kafka.GroupBalancer{spy},
		})
	}
	one := join("of one")
	one.nextWith(topic, 2)
	two := join("of two")
	two.nextWith(topic, 1)
	one.nextWith(topic, 1)
	spy.lock.Lock()
	var seen []string
	for data := range spy.seen {
		seen = append(seen, data)
	}
	spy.lock.Unlock()
	sort.Strings(seen)
	t.Equal(seen, []string{"of one", "of two"}, "user data that the leader was given")
	one.leave()
	two.leave()
}

// kafkaGoErrors are the codes that its users meet, by the client's own names.
func kafkaGoErrors(t *T) {
	topic := t.Topic("", 1)
	refused := func(want kafka.Error, change func(*kafka.ConsumerGroupConfig)) {
		config := kafka.ConsumerGroupConfig{
			ID: t.Group, Brokers: []string{t.Bootstrap}, Topics: []string{topic},
			SessionTimeout: sessionTimeout, JoinGroupBackoff: 100 * time.Millisecond,
		}
		change(&config)
		group, err := kafka.NewConsumerGroup(config)
		t.Must(err, "NewConsumerGroup")
		defer group.Close()
		for range 2 { // it joins again after JoinGroupBackoff
			if _, err := group.Next(t.ctx); !errors.Is(err, want) {
				t.Failf("Next: got %v, want %v", err, want)
			}
		}
	}
	for _, timeout := range []time.Duration{time.Millisecond, 24 * time.Hour} {
		refused(kafka.InvalidSessionTimeout, func(config *kafka.ConsumerGroupConfig) {
			config.SessionTimeout = timeout
		})
	}
	member := t.kafkaGoJoin(kafka.ConsumerGroupConfig{
		Topics: []string{topic}, GroupBalancers: []kafka.GroupBalancer{kafka.RangeGroupBalancer{}},
	})
	generation := member.nextWith(topic, 1)
	refused(kafka.InconsistentGroupProtocol, func(config *kafka.ConsumerGroupConfig) {
		config.GroupBalancers = []kafka.GroupBalancer{kafka.RoundRobinGroupBalancer{}}
	})
	client := &kafka.Client{Addr: kafka.TCP(t.Bootstrap)}
	// by commits: Client.Heartbeat of this library looks for the error where the throttle time is
	commit := func(id int32, member string) error {
		answer, err := client.OffsetCommit(t.ctx, &kafka.OffsetCommitRequest{
			GroupID: t.Group, GenerationID: int(id), MemberID: member,
			Topics: map[string][]kafka.OffsetCommit{topic: {{Partition: 0, Offset: 1}}},
		})
		t.Must(err, "OffsetCommit")
		return answer.Topics[topic][0].Error
	}
	t.Equal(commit(generation.ID, generation.MemberID), nil, "OffsetCommit")
	if err := commit(generation.ID+1, generation.MemberID); !errors.Is(err, kafka.IllegalGeneration) {
		t.Failf("OffsetCommit of another generation: %v", err)
	}
	if err := commit(generation.ID, "stranger"); !errors.Is(err, kafka.UnknownMemberId) {
		t.Failf("OffsetCommit of a stranger: %v", err)
	}
	beat, err := client.Heartbeat(t.ctx, &kafka.HeartbeatRequest{
		GroupID: t.Group, GenerationID: generation.ID, MemberID: "stranger",
	})
	t.Must(err, "Heartbeat")
	t.Equal(beat.Error, nil, "Heartbeat of a stranger, as this library reads it")
	member.leave()
}

// kafkaGoStoreAway meets a store that fails: error 16 for the join that waits for it, then error 14.
// Its host mends the store then.
func kafkaGoStoreAway(t *T) {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: t.Group, Brokers: []string{t.Bootstrap}, Topics: []string{"orders"},
		SessionTimeout: sessionTimeout, JoinGroupBackoff: 100 * time.Millisecond,
	})
	t.Must(err, "NewConsumerGroup")
	defer group.Close()
	for _, want := range []kafka.Error{kafka.NotCoordinatorForGroup, kafka.GroupLoadInProgress} {
		if _, err := group.Next(t.ctx); !errors.Is(err, want) {
			t.Failf("Next: got %v, want %v", err, want)
		}
	}
	t.Eventually("a generation", func() bool {
		_, err := group.Next(t.ctx)
		return err == nil
	})
}

// kafkaGoGroupLimit is one group more than its server may have.
func kafkaGoGroupLimit(t *T) {
	member := t.kafkaGoJoin(kafka.ConsumerGroupConfig{Topics: []string{"orders"}})
	member.nextWith("orders", 400)
	kafkaGoRefused(t, t.Bootstrap, kafka.GroupCoordinatorNotAvailable)
	member.leave()
}

// kafkaGoAuthorizationErrors meets a broker with ACLs, which groupkeeper does not have.
func kafkaGoAuthorizationErrors(t *T) {
	for code, want := range map[int16]kafka.Error{
		29: kafka.TopicAuthorizationFailed,
		30: kafka.GroupAuthorizationFailed,
		31: kafka.ClusterAuthorizationFailed,
	} {
		// the answer to FindCoordinator: a code, and a broker without name and port
		kafkaGoRefused(t, t.Fake(code, int32(-1), int16(0), int32(-1)), want)
	}
}

// kafkaGoRefused is a group that never gets a generation.
func kafkaGoRefused(t *T, bootstrap string, want kafka.Error) {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: t.Group + "-refused", Brokers: []string{bootstrap}, Topics: []string{"orders"},
		SessionTimeout: sessionTimeout, JoinGroupBackoff: 100 * time.Millisecond,
	})
	t.Must(err, "NewConsumerGroup")
	defer group.Close()
	if _, err := group.Next(t.ctx); !errors.Is(err, want) {
		t.Failf("Next: got %v, want %v", err, want)
	}
}
