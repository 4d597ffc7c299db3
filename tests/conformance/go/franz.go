package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// franzMember polls in the background, and keeps what it holds and ever lost.
type franzMember struct {
	t        *T
	client   *kgo.Client
	stop     context.CancelFunc
	finished chan struct{}

	lock    sync.Mutex
	held    map[string]map[int32]bool
	revoked int
}

func (t *T) franzJoin(options ...kgo.Opt) *franzMember {
	member := &franzMember{t: t, finished: make(chan struct{}), held: map[string]map[int32]bool{}}
	give := func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
		member.lock.Lock()
		defer member.lock.Unlock()
		for topic, ids := range parts {
			if member.held[topic] == nil {
				member.held[topic] = map[int32]bool{}
			}
			for _, id := range ids {
				member.held[topic][id] = true
			}
		}
	}
	take := func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
		member.lock.Lock()
		defer member.lock.Unlock()
		for topic, ids := range parts {
			for _, id := range ids {
				delete(member.held[topic], id)
				member.revoked++
			}
		}
	}
	member.client = t.Kgo(append([]kgo.Opt{
		kgo.ConsumerGroup(t.Group),
		kgo.SessionTimeout(sessionTimeout),
		kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(give),
		kgo.OnPartitionsRevoked(take),
		kgo.OnPartitionsLost(take),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
	}, options...)...)
	ctx, stop := context.WithCancel(t.ctx)
	member.stop = stop
	go func() {
		defer close(member.finished)
		for ctx.Err() == nil {
			member.client.PollFetches(ctx)
		}
	}()
	return member
}

func (m *franzMember) holding(topic string) []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	var ids []int32
	for id := range m.held[topic] {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	return ids
}

func (m *franzMember) lost() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.revoked
}

// franzHold waits until each member holds so many partitions of a topic.
func franzHold(topic string, count int, members ...*franzMember) {
	members[0].t.Eventually(fmt.Sprintf("each holds %d of %s", count, topic), func() bool {
		for _, member := range members {
			if len(member.holding(topic)) != count {
				return false
			}
		}
		return true
	})
}

// commit commits and tells the partition's error, and a member's own generation before and after.
func (m *franzMember) commit(topic string, partition int32, offset int64) error {
	var answer error
	m.client.CommitOffsetsSync(m.t.ctx,
		map[string]map[int32]kgo.EpochOffset{topic: {partition: {Epoch: -1, Offset: offset}}},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, reply *kmsg.OffsetCommitResponse, err error) {
			answer = err
			if err == nil {
				answer = kerr.ErrorForCode(reply.Topics[0].Partitions[0].ErrorCode)
			}
		})
	return answer
}

func (m *franzMember) leave() {
	m.stop()
	<-m.finished
	m.client.Close() // says goodbye unless the member is static
}

func franzLifeCycle(t *T) {
	topic := t.Topic("", 4)
	options := []kgo.Opt{kgo.ConsumeTopics(topic), kgo.Balancers(kgo.RangeBalancer())}
	one := t.franzJoin(options...)
	franzHold(topic, 4, one)
	two := t.franzJoin(options...)
	franzHold(topic, 2, one, two)
	t.Equal(t.Described(t.Group).Protocol, "range", "protocol")
	t.Must(one.commit(topic, one.holding(topic)[0], 31), "commit")
	committed := t.Committed(t.Group, topic)
	t.Equal(len(committed), 1, "committed partitions")
	one.leave()
	franzHold(topic, 4, two)
	two.leave()
	t.State(t.Group, "Empty")
	back := t.franzJoin(options...)
	franzHold(topic, 4, back)
	t.Eventually("the member goes on from the commit", func() bool {
		found := map[int32]int64{}
		for partition, offset := range back.client.CommittedOffsets()[topic] {
			if offset.Offset > 0 {
				found[partition] = offset.Offset
			}
		}
		return fmt.Sprint(found) == fmt.Sprint(committed)
	})
	back.leave()
}

func franzCooperativeSticky(t *T) {
	topic := t.Topic("", 6)
	options := []kgo.Opt{kgo.ConsumeTopics(topic), kgo.Balancers(kgo.CooperativeStickyBalancer())}
	one := t.franzJoin(options...)
	franzHold(topic, 6, one)
	two := t.franzJoin(options...)
	franzHold(topic, 3, one, two)
	t.Equal(t.Described(t.Group).Protocol, "cooperative-sticky", "protocol")
	t.Equal(one.lost(), 3, "partitions that the first member gave up: those that moved and no other")
	one.leave()
	franzHold(topic, 6, two)
	t.Equal(two.lost(), 0, "partitions that the second member gave up")
	two.leave()
}

func franzStaticMember(t *T) {
	topic := t.Topic("", 4)
	options := []kgo.Opt{kgo.ConsumeTopics(topic), kgo.InstanceID("one"), kgo.SessionTimeout(30 * time.Second)}
	one := t.franzJoin(options...)
	franzHold(topic, 4, one)
	_, before := one.client.GroupMetadata()
	one.leave()
	t.Equal(t.Described(t.Group).State, "Stable", "state while the member is away")
	back := t.franzJoin(options...)
	franzHold(topic, 4, back)
	_, after := back.client.GroupMetadata()
	t.Equal(after, before, "generation after coming back")
	t.Equal(*t.Described(t.Group).Members[0].InstanceID, "one", "instance id")
	back.leave()
}

func franzRegex(t *T) {
	first := t.Topic("-north", 2)
	member := t.franzJoin(kgo.ConsumeRegex(), kgo.ConsumeTopics("^"+t.Group+"-.*th$"))
	franzHold(first, 2, member)
	second := t.Topic("-south", 3)
	t.Topic("-east", 1)
	franzHold(second, 3, member)
	t.Equal(len(member.holding(first)), 2, "partitions of the first topic")
	t.Equal(len(member.holding(t.Group+"-east")), 0, "partitions that do not match")
	member.leave()
}

// setGroupConfig sets one config of the scenario's group.
func (t *T) setGroupConfig(key, value string) {
	client := t.Kgo()
	defer client.Close()
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, t.Group
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = key, &value
	resource.Configs = append(resource.Configs, config)
	request.Resources = append(request.Resources, resource)
	reply, err := request.RequestWith(t.ctx, client)
	t.Must(err, "IncrementalAlterConfigs")
	t.Must(kerr.ErrorForCode(reply.Resources[0].ErrorCode), "IncrementalAlterConfigs")
}

func franzMonotonicCommit(t *T) {
	topic := t.Topic("", 2)
	t.setGroupConfig("commit.monotonic", "true")
	member := t.franzJoin(kgo.ConsumeTopics(topic))
	franzHold(topic, 2, member)
	id, generation := member.client.GroupMetadata()
	t.Must(member.commit(topic, 0, 10), "commit")
	if err := member.commit(topic, 0, 9); !errors.Is(err, kerr.InvalidCommitOffsetSize) {
		t.Failf("a rewind: %v", err)
	}
	t.Must(member.commit(topic, 0, 11), "commit after the refusal")
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{0: 11}, "committed")
	idAfter, generationAfter := member.client.GroupMetadata()
	t.Equal([]any{idAfter, generationAfter}, []any{id, generation}, "membership")
	t.Equal(member.lost(), 0, "partitions lost")
	member.leave()
	t.State(t.Group, "Empty")
}

func kadmGroups(t *T) {
	topic := t.Topic("", 2)
	admin := t.Admin()
	defer admin.Close()
	member := t.franzJoin(kgo.ConsumeTopics(topic), kgo.ClientID("the-client"))
	franzHold(topic, 2, member)
	listed := func(states ...string) bool {
		groups, err := admin.ListGroups(t.ctx, states...)
		t.Must(err, "ListGroups")
		_, found := groups[t.Group]
		return found
	}
	t.Equal([]bool{listed(), listed("Stable"), listed("Empty")}, []bool{true, true, false}, "listed")
	described := t.Described(t.Group)
	t.Equal([]string{described.State, described.ProtocolType}, []string{"Stable", "consumer"}, "described")
	t.Equal(described.Members[0].ClientID, "the-client", "client id")
	assigned := described.AssignedPartitions()
	t.Equal(len(assigned[topic]), 2, "assigned, as the administrator reads it")
	if _, err := admin.DeleteGroup(t.ctx, t.Group); !errors.Is(err, kerr.NonEmptyGroup) {
		t.Failf("deletion of a group at work: %v", err)
	}
	member.leave()
	t.State(t.Group, "Empty")
	t.Equal([]bool{listed("Stable"), listed("Empty")}, []bool{false, true}, "listed")
	_, err := admin.DeleteGroup(t.ctx, t.Group)
	t.Must(err, "DeleteGroup")
	t.Equal(listed(), false, "listed after its deletion")
}

func kadmOffsets(t *T) {
	topic := t.Topic("", 3)
	admin := t.Admin()
	defer admin.Close()
	offsets := make(kadm.Offsets)
	for partition := range int32(3) {
		offsets.AddOffset(topic, partition, int64(partition)+5, -1)
	}
	t.Must(admin.CommitAllOffsets(t.ctx, t.Group, offsets), "CommitAllOffsets")
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{0: 5, 1: 6, 2: 7}, "committed")
	for group, fetched := range admin.FetchManyOffsets(t.ctx, t.Group, t.Group+"-absent") {
		t.Must(fetched.Err, "FetchManyOffsets")
		if want := map[string]int{t.Group: 3}[group]; len(fetched.Fetched[topic]) != want {
			t.Failf("%s has %d offsets", group, len(fetched.Fetched[topic]))
		}
	}
	lags, err := admin.Lag(t.ctx, t.Group)
	t.Must(err, "Lag")
	lag := lags[t.Group]
	t.Must(lag.Error(), "Lag")
	t.Equal(len(lag.Lag[topic]), 3, "partitions with a lag")
	deleted, err := admin.DeleteOffsets(t.ctx, t.Group, kadm.TopicsSet{topic: {0: {}, 2: {}}})
	t.Must(err, "DeleteOffsets")
	t.Must(deleted.Error(), "DeleteOffsets")
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{1: 6}, "left")
	_, err = admin.DeleteGroup(t.ctx, t.Group)
	t.Must(err, "DeleteGroup")
	t.Equal(t.Committed(t.Group, topic), map[int32]int64{}, "left after the group's deletion")
}

func kadmLeave(t *T) {
	topic := t.Topic("", 2)
	admin := t.Admin()
	defer admin.Close()
	one := t.franzJoin(kgo.ConsumeTopics(topic), kgo.InstanceID("one"), kgo.SessionTimeout(60*time.Second))
	franzHold(topic, 2, one)
	two := t.franzJoin(kgo.ConsumeTopics(topic), kgo.InstanceID("two"), kgo.SessionTimeout(60*time.Second))
	franzHold(topic, 1, one, two)
	one.leave()
	t.Equal(len(t.Described(t.Group).Members), 2, "members: a static one is missed only after its session")
	left, err := admin.LeaveGroup(t.ctx, kadm.LeaveGroup(t.Group).Reason("its host is gone").InstanceIDs("one"))
	t.Must(err, "LeaveGroup")
	t.Must(left.Error(), "LeaveGroup")
	franzHold(topic, 2, two)
	two.leave()
}

func kadmTopics(t *T) {
	topic := t.Topic("", 1)
	admin := t.Admin()
	defer admin.Close()
	grown, err := admin.UpdatePartitions(t.ctx, 4, topic)
	t.Must(err, "UpdatePartitions")
	t.Must(grown.Error(), "UpdatePartitions")
	t.Eventually("four partitions", func() bool {
		starts, err := admin.ListStartOffsets(t.ctx, topic)
		return err == nil && starts.Error() == nil && len(starts[topic]) == 4
	})
	offsets := make(kadm.Offsets)
	offsets.AddOffset(topic, 3, 9, -1)
	t.Must(admin.CommitAllOffsets(t.ctx, t.Group, offsets), "CommitAllOffsets")
	deleted, err := admin.DeleteTopic(t.ctx, topic)
	t.Must(err, "DeleteTopic")
	t.Must(deleted.Err, "DeleteTopic")
	t.Eventually("offsets go with their topic", func() bool {
		return len(t.Committed(t.Group, topic)) == 0
	})
}
