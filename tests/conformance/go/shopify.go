package main

import (
	"errors"
	"io"
	"net"
	"strings"
	"time"

	shopify "github.com/Shopify/sarama"
)

// Sarama of March 2016, before it asked for ApiVersions: its versions are fixed. It sends Metadata 0,
// FindCoordinator 0, JoinGroup 0, SyncGroup 0, Heartbeat 0, LeaveGroup 0, DescribeGroups 0,
// ListGroups 0, OffsetCommit 0 to 2, OffsetFetch 0 and 1; and ListOffsets 0, Fetch 0 and Produce 0.

func shopifyConfig() *shopify.Config {
	config := shopify.NewConfig()
	config.ClientID = "conformance"
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = shopify.OffsetOldest
	config.Metadata.Retry.Max = 1
	config.Producer.Retry.Max = 0
	config.Net.ReadTimeout = 20 * time.Second
	return config
}

func (t *T) shopifyClient() shopify.Client {
	client, err := shopify.NewClient([]string{t.Bootstrap}, shopifyConfig())
	t.Must(err, "NewClient")
	return client
}

// shopifyCoordinator is the broker that the client finds for the group.
func (t *T) shopifyCoordinator(client shopify.Client) *shopify.Broker {
	t.Must(client.RefreshCoordinator(t.Group), "RefreshCoordinator")
	broker, err := client.Coordinator(t.Group)
	t.Must(err, "Coordinator")
	return broker
}

func shopifyOffsetManager(t *T) {
	topic := t.Topic("", 2)
	managed := func(interval time.Duration, use func(shopify.PartitionOffsetManager)) {
		config := shopifyConfig()
		config.Consumer.Offsets.CommitInterval = interval
		client, err := shopify.NewClient([]string{t.Bootstrap}, config)
		t.Must(err, "NewClient")
		offsets, err := shopify.NewOffsetManagerFromClient(t.Group, client)
		t.Must(err, "NewOffsetManagerFromClient")
		partition, err := offsets.ManagePartition(topic, 1)
		t.Must(err, "ManagePartition")
		use(partition)
		partition.AsyncClose() // waits until the interval has written what was marked
		for failed := range partition.Errors() {
			t.Failf("the offset manager complains: %v", failed)
		}
		t.Must(offsets.Close(), "Close")
		t.Must(client.Close(), "Close")
	}
	managed(50*time.Millisecond, func(partition shopify.PartitionOffsetManager) {
		first, metadata := partition.NextOffset()
		t.Equal([]any{first, metadata}, []any{shopify.OffsetOldest, ""}, "next offset before any commit")
		partition.MarkOffset(42, "marked")
		t.Eventually("the commit of the interval", func() bool { return t.Committed(t.Group, topic)[1] == 42 })
	})
	managed(10*time.Second, func(partition shopify.PartitionOffsetManager) {
		partition.MarkOffset(43, "marked late")
		t.Equal(t.Committed(t.Group, topic), map[int32]int64{1: 42}, "committed at the mark")
	})
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{1: 43}, "committed by the async close")
	managed(50*time.Millisecond, func(partition shopify.PartitionOffsetManager) {
		offset, metadata := partition.NextOffset()
		// this one takes what was marked for the last message that was read: the next is one more
		t.Equal([]any{offset, metadata}, []any{44, "marked late"}, "next offset after coming back")
	})
}

// shopifyMember is a member made of the library's single requests: it has no consumer group.
type shopifyMember struct {
	t          *T
	broker     *shopify.Broker
	id         string
	generation int32
	leader     string
}

func (m *shopifyMember) joinRequest(protocol, topic string) *shopify.JoinGroupRequest {
	request := &shopify.JoinGroupRequest{
		GroupId: m.t.Group, MemberId: m.id, ProtocolType: "consumer",
		SessionTimeout: int32(sessionTimeout / time.Millisecond),
	}
	metadata := &shopify.ConsumerGroupMemberMetadata{Topics: []string{topic}, UserData: []byte("mine")}
	m.t.Must(request.AddGroupProtocolMetadata(protocol, metadata), "metadata")
	return request
}

func (m *shopifyMember) join(topic string) *shopify.JoinGroupResponse {
	joined, err := m.broker.JoinGroup(m.joinRequest("range", topic))
	m.t.Must(err, "JoinGroup")
	m.t.Equal(joined.Err, shopify.ErrNoError, "JoinGroup")
	m.id, m.generation, m.leader = joined.MemberId, joined.GenerationId, joined.LeaderId
	return joined
}

func (m *shopifyMember) sync(topic string, partitions []int32) *shopify.SyncGroupResponse {
	request := &shopify.SyncGroupRequest{GroupId: m.t.Group, GenerationId: m.generation, MemberId: m.id}
	if m.id == m.leader {
		assignment := &shopify.ConsumerGroupMemberAssignment{
			Topics: map[string][]int32{topic: partitions}, UserData: []byte("yours"),
		}
		m.t.Must(request.AddGroupAssignmentMember(m.id, assignment), "assignment")
	}
	synced, err := m.broker.SyncGroup(request)
	m.t.Must(err, "SyncGroup")
	return synced
}

func (m *shopifyMember) heartbeat(generation int32, member string) shopify.KError {
	beat, err := m.broker.Heartbeat(&shopify.HeartbeatRequest{
		GroupId: m.t.Group, GenerationId: generation, MemberId: member,
	})
	m.t.Must(err, "Heartbeat")
	return beat.Err
}

func (m *shopifyMember) commit(version int16, topic string, offset int64) shopify.KError {
	request := &shopify.OffsetCommitRequest{
		ConsumerGroup: m.t.Group, ConsumerID: m.id, ConsumerGroupGeneration: m.generation,
		RetentionTime: -1, Version: version,
	}
	timestamp := int64(0)
	if version == 1 {
		timestamp = shopify.ReceiveTime
	}
	request.AddBlock(topic, 0, offset, timestamp, "by hand")
	committed, err := m.broker.CommitOffset(request)
	m.t.Must(err, "CommitOffset")
	return committed.Errors[topic][0]
}

func (m *shopifyMember) fetched(version int16, topic string) *shopify.OffsetFetchResponseBlock {
	request := &shopify.OffsetFetchRequest{ConsumerGroup: m.t.Group, Version: version}
	request.AddPartition(topic, 0)
	fetched, err := m.broker.FetchOffset(request)
	m.t.Must(err, "FetchOffset")
	return fetched.GetBlock(topic, 0)
}

// shopifyJoined is a member alone, the client that it came by, and its topic of two partitions.
func (t *T) shopifyJoined() (shopify.Client, *shopifyMember, string) {
	topic := t.Topic("", 2)
	client := t.shopifyClient()
	member := &shopifyMember{t: t, broker: t.shopifyCoordinator(client)}
	member.join(topic)
	return client, member, topic
}

func shopifyGroupRequests(t *T) {
	client, member, topic := t.shopifyJoined()
	t.Equal(member.broker.Addr(), t.Bootstrap, "the coordinator")
	t.Must(client.RefreshCoordinator(t.Group+"-another"), "RefreshCoordinator")
	another, err := client.Coordinator(t.Group + "-another")
	t.Must(err, "Coordinator")
	t.Equal(another.Addr(), t.Bootstrap, "the coordinator of another group")
	t.Equal(member.id, member.leader, "the leader of one")
	synced := member.sync(topic, []int32{0, 1})
	t.Equal(synced.Err, shopify.ErrNoError, "SyncGroup")
	assigned, err := synced.GetMemberAssignment()
	t.Must(err, "GetMemberAssignment")
	t.Equal(assigned.Topics, map[string][]int32{topic: {0, 1}}, "assigned")
	t.Equal(string(assigned.UserData), "yours", "user data of the assignment")
	t.Equal(member.heartbeat(member.generation, member.id), shopify.ErrNoError, "Heartbeat")
	for version := int16(1); version <= 2; version++ {
		t.Equal(member.commit(version, topic, int64(10+version)), shopify.ErrNoError, "CommitOffset")
		t.Equal(member.fetched(1, topic).Offset, 10+version, "FetchOffset")
	}
	t.Equal(member.fetched(0, topic).Metadata, "by hand", "FetchOffset 0")

	described, err := member.broker.DescribeGroups(&shopify.DescribeGroupsRequest{Groups: []string{t.Group}})
	t.Must(err, "DescribeGroups")
	group := described.Groups[0]
	t.Equal([]any{group.State, group.ProtocolType, group.Protocol}, []any{"Stable", "consumer", "range"}, "described")
	shown := group.Members[member.id]
	t.Equal(shown.ClientId, "conformance", "client id")
	metadata := string(shown.MemberMetadata)
	t.Equal(strings.Contains(metadata, topic) && strings.HasSuffix(metadata, "mine"), true, "metadata "+metadata)
	listed, err := member.broker.ListGroups(&shopify.ListGroupsRequest{})
	t.Must(err, "ListGroups")
	t.Equal(listed.Groups[t.Group], "consumer", "listed")

	left, err := member.broker.LeaveGroup(&shopify.LeaveGroupRequest{GroupId: t.Group, MemberId: member.id})
	t.Must(err, "LeaveGroup")
	t.Equal(left.Err, shopify.ErrNoError, "LeaveGroup")
	t.State(t.Group, "Empty")
	// without members the oldest version commits as well
	member.id, member.generation = "", 0
	t.Equal(member.commit(0, topic, 7), shopify.ErrNoError, "CommitOffset 0")
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{0: 7}, "committed")
	t.Must(client.Close(), "Close")
}

func shopifyGroupErrors(t *T) {
	client, member, topic := t.shopifyJoined()
	t.Equal(member.heartbeat(member.generation, member.id), shopify.ErrNoError, "Heartbeat before SyncGroup")
	t.Equal(member.sync(topic, []int32{0, 1}).Err, shopify.ErrNoError, "SyncGroup")

	t.Equal(member.heartbeat(member.generation+1, member.id), shopify.ErrIllegalGeneration, "22")
	t.Equal(member.heartbeat(member.generation, "stranger"), shopify.ErrUnknownMemberId, "25")
	simple := &shopifyMember{t: t, broker: member.broker, generation: shopify.GroupGenerationUndefined}
	t.Equal(simple.commit(2, topic, 1), shopify.ErrUnknownMemberId, "25: a commit beside members")
	refused := func(change func(*shopify.JoinGroupRequest), want shopify.KError) {
		newcomer := &shopifyMember{t: t, broker: member.broker}
		request := newcomer.joinRequest("range", topic)
		change(request)
		joined, err := member.broker.JoinGroup(request)
		t.Must(err, "JoinGroup")
		t.Equal(joined.Err, want, "JoinGroup")
	}
	refused(func(request *shopify.JoinGroupRequest) {
		request.GroupProtocols = map[string][]byte{"of nobody else": {}}
	}, shopify.ErrInconsistentGroupProtocol)
	refused(func(request *shopify.JoinGroupRequest) { request.GroupId = "" }, shopify.ErrInvalidGroupId)
	refused(func(request *shopify.JoinGroupRequest) { request.SessionTimeout = 1 }, shopify.ErrInvalidSessionTimeout)

	// a second member: the first hears of the rebalance
	second := t.shopifyClient()
	other := &shopifyMember{t: t, broker: t.shopifyCoordinator(second)}
	joined := make(chan *shopify.JoinGroupResponse)
	go func() {
		answer, err := other.broker.JoinGroup(other.joinRequest("range", topic))
		if err != nil {
			answer = &shopify.JoinGroupResponse{Err: shopify.ErrUnknown}
		}
		joined <- answer
	}()
	t.Eventually("27", func() bool {
		return member.heartbeat(member.generation, member.id) == shopify.ErrRebalanceInProgress
	})
	member.join(topic)
	t.Equal((<-joined).Err, shopify.ErrNoError, "JoinGroup of the second")
	long := strings.Repeat("x", 5000)
	request := &shopify.OffsetCommitRequest{
		ConsumerGroup: t.Group + "-simple", ConsumerGroupGeneration: shopify.GroupGenerationUndefined,
		Version: 2, RetentionTime: -1,
	}
	request.AddBlock(topic, 0, 1, 0, long)
	request.AddBlock(topic, 1, 1, 0, "")
	committed, err := member.broker.CommitOffset(request)
	t.Must(err, "CommitOffset")
	t.Equal(committed.Errors[topic], map[int32]shopify.KError{
		0: shopify.ErrOffsetMetadataTooLarge, 1: shopify.ErrNoError,
	}, "CommitOffset with long metadata")
	t.Must(second.Close(), "Close")
	t.Must(client.Close(), "Close")
}

// shopifyAuthorizationErrors meets a broker with ACLs, which groupkeeper does not have.
func shopifyAuthorizationErrors(t *T) {
	for code, want := range map[int16]shopify.KError{
		29: shopify.ErrTopicAuthorizationFailed,
		30: shopify.ErrGroupAuthorizationFailed,
		31: shopify.ErrClusterAuthorizationFailed,
	} {
		broker := shopify.NewBroker(t.Fake(code))
		t.Must(broker.Open(shopifyConfig()), "Open")
		member := &shopifyMember{t: t, broker: broker}
		t.Equal(member.heartbeat(1, "member"), want, "Heartbeat")
		t.Must(broker.Close(), "Close")
	}
}

// shopifyAway tells an error that a closed connection ends in.
func shopifyAway(err error) bool {
	var lost net.Error
	return errors.Is(err, io.EOF) || errors.As(err, &lost) || errors.Is(err, shopify.ErrOutOfBrokers)
}

// ListOffsets 0, Fetch 0 and Produce 0 went with Kafka 4: their connection is closed, and what the
// client asks of groups goes on.
func shopifyClosedVersions(t *T) {
	client, member, topic := t.shopifyJoined()
	t.Equal(member.sync(topic, []int32{0, 1}).Err, shopify.ErrNoError, "SyncGroup")
	if _, err := client.GetOffset(topic, 0, shopify.OffsetNewest); !shopifyAway(err) {
		t.Failf("GetOffset (ListOffsets 0): %v", err)
	}
	consumer, err := shopify.NewConsumerFromClient(client)
	t.Must(err, "NewConsumerFromClient")
	if _, err = consumer.ConsumePartition(topic, 0, shopify.OffsetOldest); !shopifyAway(err) {
		t.Failf("ConsumePartition (ListOffsets 0): %v", err)
	}
	t.Must(consumer.Close(), "Close")
	leader := t.shopifyLeader(topic)
	fetch := &shopify.FetchRequest{MaxWaitTime: 100, MinBytes: 1}
	fetch.AddBlock(topic, 0, 0, 1<<20)
	if _, err = leader.Fetch(fetch); !shopifyAway(err) {
		t.Failf("Fetch 0: %v", err)
	}
	config := shopifyConfig()
	config.Producer.Return.Successes = true
	producer, err := shopify.NewSyncProducer([]string{t.Bootstrap}, config)
	t.Must(err, "NewSyncProducer")
	message := &shopify.ProducerMessage{Topic: topic, Value: shopify.StringEncoder("x")}
	if _, _, err = producer.SendMessage(message); !shopifyAway(err) {
		t.Failf("SendMessage (Produce 0): %v", err)
	}
	t.Must(producer.Close(), "Close")

	afterwards := t.shopifyClient()
	member.broker = t.shopifyCoordinator(afterwards)
	t.Equal(member.heartbeat(member.generation, member.id), shopify.ErrNoError, "Heartbeat afterwards")
	t.Equal(member.commit(1, topic, 3), shopify.ErrNoError, "CommitOffset afterwards")
	t.Must(afterwards.Close(), "Close")
}

// shopifyLeader is a new connection to the leader of a topic.
func (t *T) shopifyLeader(topic string) *shopify.Broker {
	client := t.shopifyClient()
	leader, err := client.Leader(topic, 0)
	t.Must(err, "Leader")
	broker := shopify.NewBroker(leader.Addr())
	t.Must(broker.Open(shopifyConfig()), "Open")
	t.Must(client.Close(), "Close")
	return broker
}

// shopifyStoreAway meets a store that fails. The join that waits for the first append gets error 16.
// While the groups are loaded again, every request gets error 14. Its host mends the store then.
func shopifyStoreAway(t *T) {
	client := t.shopifyClient()
	member := &shopifyMember{t: t, broker: t.shopifyCoordinator(client), generation: -1}
	join := func() shopify.KError {
		newcomer := &shopifyMember{t: t, broker: member.broker}
		joined, err := member.broker.JoinGroup(newcomer.joinRequest("range", "orders"))
		t.Must(err, "JoinGroup")
		return joined.Err
	}
	t.Equal(join(), shopify.ErrNotCoordinatorForConsumer, "JoinGroup that waits for the store")
	t.Equal(member.commit(2, "orders", 1), shopify.ErrOffsetsLoadInProgress, "CommitOffset")
	t.Equal(member.fetched(1, "orders").Err, shopify.ErrOffsetsLoadInProgress, "FetchOffset")
	t.Equal(join(), shopify.ErrOffsetsLoadInProgress, "JoinGroup")
	t.Eventually("the commit is taken", func() bool {
		return member.commit(2, "orders", 1) == shopify.ErrNoError
	})
	member.broker = t.shopifyCoordinator(client) // after 16: look for the coordinator again
	t.Equal(join(), shopify.ErrNoError, "JoinGroup afterwards")
	t.Must(client.Close(), "Close")
}

// shopifyGroupLimit is one group more than its server may have.
func shopifyGroupLimit(t *T) {
	client := t.shopifyClient()
	member := &shopifyMember{t: t, broker: t.shopifyCoordinator(client), generation: -1}
	t.Equal(member.commit(2, "orders", 1), shopify.ErrNoError, "CommitOffset of the last group that fits")
	another := &T{Bootstrap: t.Bootstrap, Group: t.Group + "-too-many", ctx: t.ctx}
	late := &shopifyMember{t: another, broker: member.broker, generation: -1}
	t.Equal(late.commit(2, "orders", 1), shopify.ErrConsumerCoordinatorNotAvailable, "CommitOffset")
	joined, err := late.broker.JoinGroup(late.joinRequest("range", "orders"))
	t.Must(err, "JoinGroup")
	t.Equal(joined.Err, shopify.ErrConsumerCoordinatorNotAvailable, "JoinGroup")
	t.Equal(member.commit(2, "orders", 2), shopify.ErrNoError, "CommitOffset of a group that is there")
	t.Must(client.Close(), "Close")
}

// shopifyLargeGroup commits more metadata than a group of its server may hold.
func shopifyLargeGroup(t *T) {
	client := t.shopifyClient()
	broker := t.shopifyCoordinator(client)
	commit := func(topic string, partitions int32) map[int32]shopify.KError {
		request := &shopify.OffsetCommitRequest{
			ConsumerGroup: t.Group, ConsumerGroupGeneration: shopify.GroupGenerationUndefined,
			Version: 2, RetentionTime: -1,
		}
		for partition := int32(0); partition < partitions; partition++ {
			request.AddBlock(topic, partition, 1, 0, strings.Repeat("x", 4000))
		}
		committed, err := broker.CommitOffset(request)
		t.Must(err, "CommitOffset")
		return committed.Errors[topic]
	}
	refused := 0
	for _, failed := range commit("orders", 400) {
		switch failed {
		case shopify.ErrNoError:
		case shopify.ErrInvalidCommitOffsetSize:
			refused++
		default:
			t.Failf("CommitOffset: %v", failed)
		}
	}
	stored := len(t.Committed(t.Group, "orders"))
	t.Equal(refused > 0 && stored > 0 && stored+refused == 400, true, "what did not fit alone is refused")
	t.Must(client.Close(), "Close")
}

// shopifyTimestamp commits with the timestamp of version 1, which is no commit time: an offset of 1970
// would be over at the next look for such.
func shopifyTimestamp(t *T) {
	client := t.shopifyClient()
	ancient := &shopify.OffsetCommitRequest{
		ConsumerGroup: t.Group, ConsumerGroupGeneration: shopify.GroupGenerationUndefined, Version: 1,
	}
	ancient.AddBlock("orders", 0, 8, 1, "")
	committed, err := t.shopifyCoordinator(client).CommitOffset(ancient)
	t.Must(err, "CommitOffset 1")
	t.Equal(committed.Errors["orders"][0], shopify.ErrNoError, "CommitOffset 1")
	time.Sleep(2 * time.Second) // several looks
	t.Equal(t.Committed(t.Group, "orders"), map[int32]int64{0: 8}, "committed with a timestamp")
	t.Must(client.Close(), "Close")
}
