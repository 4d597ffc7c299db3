package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

func saramaConfig(version sarama.KafkaVersion) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = version
	config.ClientID = "conformance"
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = sessionTimeout
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.Timeout = 30 * time.Second
	config.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	config.Consumer.Return.Errors = true
	config.Metadata.RefreshFrequency = time.Second
	return config
}

// saramaOffsetManager commits by hand, without a group of members, and finds it again.
func saramaOffsetManager(t *T, config *sarama.Config) {
	topic := t.Topic("", 2)
	managed := func(use func(sarama.OffsetManager, sarama.PartitionOffsetManager)) {
		client, err := sarama.NewClient([]string{t.Bootstrap}, config)
		t.Must(err, "NewClient")
		offsets, err := sarama.NewOffsetManagerFromClient(t.Group, client)
		t.Must(err, "NewOffsetManagerFromClient")
		partition, err := offsets.ManagePartition(topic, 1)
		t.Must(err, "ManagePartition")
		use(offsets, partition)
		partition.AsyncClose()
		t.Must(offsets.Close(), "Close")
		for failed := range partition.Errors() {
			t.Failf("the offset manager complains: %v", failed)
		}
		t.Must(client.Close(), "Close")
	}
	managed(func(offsets sarama.OffsetManager, partition sarama.PartitionOffsetManager) {
		first, _ := partition.NextOffset()
		t.Equal(first, sarama.OffsetOldest, "next offset before any commit")
		partition.MarkOffset(42, "marked")
		offsets.Commit()
	})
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{1: 42}, "committed")
	managed(func(offsets sarama.OffsetManager, partition sarama.PartitionOffsetManager) {
		offset, metadata := partition.NextOffset()
		t.Equal([]any{offset, metadata}, []any{42, "marked"}, "next offset after coming back")
		partition.ResetOffset(5, "reset")
		offsets.Commit()
	})
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{1: 5}, "committed after a reset")
}

// At V0_8_2_0 it sends OffsetCommit v1, which Kafka 4 closes the connection on.
func saramaOffsetManagerOld(t *T)    { saramaOffsetManager(t, saramaConfig(sarama.V0_8_2_0)) }
func saramaOffsetManagerNewest(t *T) { saramaOffsetManager(t, saramaConfig(sarama.MaxVersion)) }

// saramaMember consumes until it is told to leave, and keeps what its sessions were given.
type saramaMember struct {
	t        *T
	group    sarama.ConsumerGroup
	topic    string
	stop     context.CancelFunc
	finished chan struct{}

	lock     sync.Mutex
	session  sarama.ConsumerGroupSession
	initials map[int32]int64
	failures []string
}

func (t *T) saramaJoin(config *sarama.Config, topic string) *saramaMember {
	group, err := sarama.NewConsumerGroup([]string{t.Bootstrap}, t.Group, config)
	t.Must(err, "NewConsumerGroup")
	ctx, stop := context.WithCancel(t.ctx)
	member := &saramaMember{t: t, group: group, topic: topic, stop: stop,
		finished: make(chan struct{}), initials: map[int32]int64{}}
	go func() {
		for failed := range group.Errors() {
			member.note(failed)
		}
	}()
	go func() {
		defer close(member.finished)
		for ctx.Err() == nil {
			// Consume returns at each rebalance: its user calls it again
			if err := group.Consume(ctx, []string{topic}, member); err != nil && ctx.Err() == nil {
				member.note(err)
				time.Sleep(200 * time.Millisecond)
			}
		}
	}()
	return member
}

func (m *saramaMember) note(err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.failures = append(m.failures, err.Error())
}

// Setup, Cleanup and ConsumeClaim are sarama.ConsumerGroupHandler.
func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.session, m.initials = session, map[int32]int64{}
	return nil
}

func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.session = nil
	return nil
}

func (m *saramaMember) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	m.lock.Lock()
	m.initials[claim.Partition()] = claim.InitialOffset()
	m.lock.Unlock()
	for range claim.Messages() { // there is none: the channel closes with the claim
	}
	return nil
}

func (m *saramaMember) claims() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.session == nil {
		return nil
	}
	claims := append([]int32{}, m.session.Claims()[m.topic]...)
	sort.Slice(claims, func(i, j int) bool { return claims[i] < claims[j] })
	return claims
}

// holds waits until each member's claims are so many.
func saramaHold(count int, members ...*saramaMember) {
	t := members[0].t
	t.Eventually(fmt.Sprintf("each claims %d (%v)", count, members[0].failures), func() bool {
		for _, member := range members {
			if len(member.claims()) != count {
				return false
			}
		}
		return true
	})
}

// commit marks and commits in the session that runs.
func (m *saramaMember) commit(partition int32, offset int64) {
	m.lock.Lock()
	session := m.session
	m.lock.Unlock()
	session.MarkOffset(m.topic, partition, offset, "")
	session.Commit()
}

func (m *saramaMember) leave() {
	m.stop()
	<-m.finished
	m.t.Must(m.group.Close(), "Close")
}

// saramaGroup is the life of a group: alone, shared, committed, left, come back to.
func saramaGroup(t *T, config *sarama.Config) {
	topic := t.Topic("", 4)
	one := t.saramaJoin(config, topic)
	saramaHold(4, one)
	two := t.saramaJoin(config, topic)
	saramaHold(2, one, two)
	t.Equal(one.claims()[0] != two.claims()[0], true, "claims differ")
	t.Equal(t.Described(t.Group).Protocol, config.Consumer.Group.Rebalance.GroupStrategies[0].Name(), "protocol")
	t.Grow(topic, one.claims()[0], 2)
	t.Grow(topic, two.claims()[0], 2)
	one.commit(one.claims()[0], 1)
	two.commit(two.claims()[0], 2)
	committed := t.Committed(t.Group, topic)
	one.leave()
	saramaHold(4, two)
	two.leave()
	t.State(t.Group, "Empty")

	back := t.saramaJoin(config, topic)
	saramaHold(4, back)
	initials := map[int32]int64{0: sarama.OffsetOldest, 1: sarama.OffsetOldest, 2: sarama.OffsetOldest, 3: sarama.OffsetOldest}
	for partition, offset := range committed {
		initials[partition] = offset
	}
	t.Equal(len(committed), 2, "committed partitions")
	t.Eventually("four claims begin", func() bool {
		back.lock.Lock()
		defer back.lock.Unlock()
		return len(back.initials) == 4
	})
	back.lock.Lock()
	for partition, offset := range back.initials {
		// without a commit some versions resolve the place to begin first
		if offset == 0 {
			back.initials[partition] = sarama.OffsetOldest
		}
	}
	t.Equal(back.initials, initials, "places to begin")
	back.lock.Unlock()
	back.leave()
}

func saramaStrategy(version sarama.KafkaVersion, strategy sarama.BalanceStrategy) *sarama.Config {
	config := saramaConfig(version)
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	return config
}

func saramaConsumerGroup011(t *T) {
	saramaGroup(t, saramaStrategy(sarama.V0_11_0_0, sarama.NewBalanceStrategyRange()))
}

func saramaConsumerGroup24(t *T) {
	saramaGroup(t, saramaStrategy(sarama.V2_4_0_0, sarama.NewBalanceStrategyRoundRobin()))
}

func saramaConsumerGroupNewest(t *T) {
	saramaGroup(t, saramaStrategy(sarama.MaxVersion, sarama.NewBalanceStrategySticky()))
}

func saramaCooperativeSticky(t *T) {
	saramaGroup(t, saramaStrategy(sarama.MaxVersion, sarama.NewBalanceStrategyCooperativeSticky()))
}

func saramaStaticMember(t *T) {
	topic := t.Topic("", 4)
	config := saramaConfig(sarama.MaxVersion)
	config.Consumer.Group.InstanceId = "one"
	config.Consumer.Group.Session.Timeout = 30 * time.Second
	one := t.saramaJoin(config, topic)
	saramaHold(4, one)
	before := one.session.GenerationID()
	one.leave() // a static member does not say goodbye
	t.Equal(t.Described(t.Group).State, "Stable", "state while the member is away")
	back := t.saramaJoin(config, topic)
	saramaHold(4, back)
	t.Equal(back.session.GenerationID(), before, "generation after coming back")
	t.Equal(*t.Described(t.Group).Members[0].InstanceID, "one", "instance id")
	back.leave()

	admin, err := sarama.NewClusterAdmin([]string{t.Bootstrap}, config)
	t.Must(err, "NewClusterAdmin")
	removed, err := admin.RemoveMemberFromConsumerGroup(t.Group, []string{"one", "nobody"})
	t.Must(err, "RemoveMemberFromConsumerGroup")
	t.Equal(removed.Members[0].Err, sarama.ErrNoError, "removal")
	t.Equal(removed.Members[1].Err, sarama.ErrUnknownMemberId, "removal of a stranger")
	t.State(t.Group, "Empty")
	t.Must(admin.Close(), "Close")
}

func saramaClusterAdmin(t *T) {
	config := saramaConfig(sarama.MaxVersion)
	admin, err := sarama.NewClusterAdmin([]string{t.Bootstrap}, config)
	t.Must(err, "NewClusterAdmin")
	defer admin.Close()
	topic := t.Group + "-made"
	t.Must(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false), "CreateTopic")
	t.Must(admin.CreatePartitions(topic, 3, nil, false), "CreatePartitions")
	t.Eventually("three partitions", func() bool {
		topics, err := admin.DescribeTopics([]string{topic})
		return err == nil && len(topics[0].Partitions) == 3
	})
	brokers, _, err := admin.DescribeCluster()
	t.Must(err, "DescribeCluster")
	t.Equal(len(brokers), 1, "brokers")

	committed, err := admin.AlterConsumerGroupOffsets(t.Group, map[string]map[int32]sarama.OffsetAndMetadata{
		topic: {0: {Offset: 21, Metadata: "by admin", LeaderEpoch: -1}, 1: {Offset: 22, LeaderEpoch: -1}},
	}, nil)
	t.Must(err, "AlterConsumerGroupOffsets")
	for partition, failed := range committed.Errors[topic] {
		t.Equal(failed, sarama.ErrNoError, fmt.Sprint("commit of partition ", partition))
	}
	groups, err := admin.ListConsumerGroups()
	t.Must(err, "ListConsumerGroups")
	_, listed := groups[t.Group]
	t.Equal(listed, true, "listed")
	described, err := admin.DescribeConsumerGroups([]string{t.Group, t.Group + "-absent"})
	t.Must(err, "DescribeConsumerGroups")
	states := map[string]string{}
	for _, group := range described {
		states[group.GroupId] = group.State
	}
	t.Equal(states, map[string]string{t.Group: "Empty", t.Group + "-absent": "Dead"}, "states")
	offsets, err := admin.ListConsumerGroupOffsets(t.Group, map[string][]int32{topic: {0, 2}})
	t.Must(err, "ListConsumerGroupOffsets")
	t.Equal(offsets.GetBlock(topic, 0).Offset, 21, "offset")
	t.Equal(offsets.GetBlock(topic, 0).Metadata, "by admin", "metadata")
	t.Equal(offsets.GetBlock(topic, 2).Offset, -1, "offset that nobody committed")

	t.Must(admin.DeleteConsumerGroupOffset(t.Group, topic, 0), "DeleteConsumerGroupOffset")
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{1: 22}, "left after the deletion")
	t.Must(admin.DeleteConsumerGroup(t.Group), "DeleteConsumerGroup")
	if err := admin.DeleteConsumerGroup(t.Group); !errors.Is(err, sarama.ErrGroupIDNotFound) {
		t.Failf("DeleteConsumerGroup of what is gone: %v", err)
	}
	t.Must(admin.DeleteTopic(topic), "DeleteTopic")
}

// groupResource is Kafka's type of a group's configs, which sarama has no name for.
const groupResource = sarama.ConfigResourceType(32)

func saramaGroupConfigs(t *T) {
	admin, err := sarama.NewClusterAdmin([]string{t.Bootstrap}, saramaConfig(sarama.MaxVersion))
	t.Must(err, "NewClusterAdmin")
	defer admin.Close()
	value := func(key string) string {
		entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: groupResource, Name: t.Group})
		t.Must(err, "DescribeConfig")
		for _, entry := range entries {
			if entry.Name == key {
				return entry.Value
			}
		}
		return "(absent)"
	}
	const key = "consumer.session.timeout.ms"
	t.Equal(value(key), "45000", "default")
	set := "50000"
	alter := func(operation sarama.IncrementalAlterConfigsOperation, value *string) error {
		return admin.IncrementalAlterConfig(groupResource, t.Group,
			map[string]sarama.IncrementalAlterConfigsEntry{key: {Operation: operation, Value: value}}, false)
	}
	t.Must(alter(sarama.IncrementalAlterConfigsOperationSet, &set), "set")
	t.Eventually("the value that was set", func() bool { return value(key) == set })
	t.Must(alter(sarama.IncrementalAlterConfigsOperationDelete, nil), "delete")
	t.Eventually("the default again", func() bool { return value(key) == "45000" })
	bad := "soon"
	if err := alter(sarama.IncrementalAlterConfigsOperationSet, &bad); err == nil || !strings.Contains(strings.ToLower(err.Error()), "config") {
		t.Failf("a value that is no number: %v", err)
	}
}

// saramaConsumer reads a partition without a group: nothing comes, and the end is the high watermark.
func saramaConsumer(t *T) {
	topic := t.Topic("", 1)
	t.Grow(topic, 0, 3)
	client, err := sarama.NewClient([]string{t.Bootstrap}, saramaConfig(sarama.MaxVersion))
	t.Must(err, "NewClient")
	t.saramaCommit(topic, 3) // a server without records goes by the largest commit
	for place, want := range map[int64]int64{sarama.OffsetOldest: 0, sarama.OffsetNewest: 3} {
		offset, err := client.GetOffset(topic, 0, place)
		t.Must(err, "GetOffset")
		t.Equal(offset, want, "GetOffset")
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	t.Must(err, "NewConsumerFromClient")
	// only with messages does the library take a later one than that of ListOffsets
	for _, highWatermark := range []int64{3, 5} {
		partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetNewest)
		t.Must(err, "ConsumePartition")
		t.Equal(partition.HighWaterMarkOffset(), highWatermark, "high watermark")
		partition.AsyncClose() // closes both channels once the last fetch is back
		for range partition.Messages() {
			t.Failf("a message that nobody sent")
		}
		for failed := range partition.Errors() {
			t.Failf("the consumer complains: %v", failed)
		}
		if highWatermark == 3 {
			t.Grow(topic, 0, 2)
			t.saramaCommit(topic, 5)
		}
	}
	if _, err := consumer.ConsumePartition(topic, 0, 6); !errors.Is(err, sarama.ErrOffsetOutOfRange) {
		t.Failf("ConsumePartition beyond the end: %v", err)
	}
	t.Must(consumer.Close(), "Close")
	t.Must(client.Close(), "Close")
}

func (t *T) saramaCommit(topic string, offset int64) {
	admin, err := sarama.NewClusterAdmin([]string{t.Bootstrap}, saramaConfig(sarama.MaxVersion))
	t.Must(err, "NewClusterAdmin")
	defer admin.Close()
	_, err = admin.AlterConsumerGroupOffsets(t.Group, map[string]map[int32]sarama.OffsetAndMetadata{
		topic: {0: {Offset: offset, LeaderEpoch: -1}},
	}, nil)
	t.Must(err, "AlterConsumerGroupOffsets")
}

// saramaProducer is refused by a server that keeps no records.
func saramaProducer(t *T) {
	topic := t.Topic("", 1)
	config := saramaConfig(sarama.MaxVersion)
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 0
	producer, err := sarama.NewSyncProducer([]string{t.Bootstrap}, config)
	t.Must(err, "NewSyncProducer")
	message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("x")}
	if _, _, err := producer.SendMessage(message); !errors.Is(err, sarama.ErrPolicyViolation) {
		t.Failf("SendMessage: %v", err)
	}
	t.Must(producer.Close(), "Close")
}
