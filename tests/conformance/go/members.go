package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Members of consumer groups (KIP-848) for a test, started as `conformance members HOST:PORT`. The
// lines that they read and write are those of tests/helpers/clients/member_host.py.

type place struct {
	topic string
	id    int32
}

func (p place) MarshalJSON() ([]byte, error) { return json.Marshal([]any{p.topic, p.id}) }

type hostedCommand struct {
	Op, Name, Group, Instance, Balancer string
	Topics                              []string
	Tag                                 int
	Rate                                float64
	Offsets                             map[string]int64
	OptIn                               bool // by the context key, as before ServerSideBalancer
}

var balancers = map[string]kgo.GroupBalancer{
	"CooperativeStickyBalancer": kgo.CooperativeStickyBalancer(),
	"StickyBalancer":            kgo.StickyBalancer(),
	"RangeBalancer":             kgo.RangeBalancer(),
	"RoundRobinBalancer":        kgo.RoundRobinBalancer(),
}

type hosted struct {
	name   string
	group  string
	client *kgo.Client
	stop   context.CancelFunc
	ended  chan struct{}

	lock      sync.Mutex // held while it commits: nothing is given up in the midst of that
	held      map[place]bool
	positions map[place]int64
	rate      float64
}

var speaking sync.Mutex

func emit(name, event string, values map[string]any) {
	speaking.Lock()
	defer speaking.Unlock()
	line := map[string]any{"name": name, "event": event, "at_ns": time.Now().UnixNano()}
	for key, value := range values {
		line[key] = value
	}
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		os.Exit(1) // nobody reads any more
	}
}

func places(parts map[string][]int32) []place {
	found := []place{}
	for topic, ids := range parts {
		for _, id := range ids {
			found = append(found, place{topic, id})
		}
	}
	return found
}

func (m *hosted) everything() []place {
	found := []place{}
	for each := range m.held {
		found = append(found, each)
	}
	sort.Slice(found, func(i, j int) bool {
		return found[i].topic < found[j].topic || found[i].topic == found[j].topic && found[i].id < found[j].id
	})
	return found
}

func (m *hosted) gained(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, each := range places(parts) {
		m.held[each] = true
	}
	emit(m.name, "assigned", map[string]any{"partitions": m.everything(), "gained": places(parts)})
}

func (m *hosted) gaveUp(event string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
		m.lock.Lock()
		defer m.lock.Unlock()
		for _, each := range places(parts) {
			delete(m.held, each)
			delete(m.positions, each)
		}
		emit(m.name, event, map[string]any{"partitions": m.everything(), event: places(parts)})
	}
}

func joinHosted(bootstrap string, command hostedCommand) *hosted {
	member := &hosted{
		name: command.Name, group: command.Group, ended: make(chan struct{}),
		held: map[place]bool{}, positions: map[place]int64{},
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ClientID(command.Name),
		kgo.ConsumerGroup(command.Group),
		kgo.ConsumeTopics(command.Topics...), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(member.gained),
		kgo.OnPartitionsRevoked(member.gaveUp("revoked")),
		kgo.OnPartitionsLost(member.gaveUp("lost")),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
		// Without it, a member whose new connection is closed before its first answer, by a kill of
		// the daemon, takes its configuration to be wrong and loses its partitions.
		kgo.AlwaysRetryEOF(),
	}
	if command.OptIn {
		optedIn := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
		options = append(options, kgo.WithContext(optedIn))
	} else {
		options = append(options, kgo.ServerSideBalancer())
	}
	if balancer, named := balancers[command.Balancer]; named {
		options = append(options, kgo.Balancers(balancer))
	}
	if strings.HasPrefix(command.Topics[0], "^") {
		options = append(options, kgo.ConsumeRegex())
	}
	if command.Instance != "" {
		options = append(options, kgo.InstanceID(command.Instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	member.client = client
	ctx, stop := context.WithCancel(context.Background())
	member.stop = stop
	go member.poll(ctx)
	go member.work(ctx)
	return member
}

func (m *hosted) poll(ctx context.Context) {
	defer close(m.ended)
	for ctx.Err() == nil {
		m.client.PollFetches(ctx).EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.Canceled) {
				emit(m.name, "error", map[string]any{"error": fmt.Sprintf("%T", err), "message": err.Error()})
			}
		})
	}
}

func (m *hosted) leave() {
	m.stop()
	<-m.ended
	m.client.Close()
	emit(m.name, "ended", nil)
}

func (m *hosted) commit(offsets map[place]int64) error {
	request := map[string]map[int32]kgo.EpochOffset{}
	for each, offset := range offsets {
		if request[each.topic] == nil {
			request[each.topic] = map[int32]kgo.EpochOffset{}
		}
		request[each.topic][each.id] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var answer error
	m.client.CommitOffsetsSync(ctx, request,
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, reply *kmsg.OffsetCommitResponse, err error) {
			answer = err
			if err != nil {
				return
			}
			for _, topic := range reply.Topics {
				for _, partition := range topic.Partitions {
					if code := kerr.ErrorForCode(partition.ErrorCode); code != nil {
						answer = code
					}
				}
			}
		})
	return answer
}

// committed is what the group has for these partitions; what is absent has the last argument.
func (m *hosted) committed(wanted []place, absent int64) (map[place]int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	offsets, err := kadm.NewClient(m.client).FetchOffsets(ctx, m.group)
	if err != nil {
		return nil, err
	}
	found := map[place]int64{}
	for _, each := range wanted {
		found[each] = absent
		if there, ok := offsets.Lookup(each.topic, each.id); ok && there.At >= 0 {
			found[each] = there.At
		}
	}
	return found, nil
}

func named(offsets map[place]int64) map[string]int64 {
	found := map[string]int64{}
	for each, offset := range offsets {
		found[fmt.Sprintf("%s:%d", each.topic, each.id)] = offset
	}
	return found
}

func pairs(offsets map[string]int64) map[place]int64 {
	found := map[place]int64{}
	for key, offset := range offsets {
		colon := strings.LastIndex(key, ":")
		id, _ := strconv.Atoi(key[colon+1:])
		found[place{key[:colon], int32(id)}] = offset
	}
	return found
}

// work commits what it holds, and goes on in each partition from what the group has there.
func (m *hosted) work(ctx context.Context) {
	for ctx.Err() == nil {
		m.lock.Lock()
		pause := 20 * time.Millisecond
		if m.rate > 0 && len(m.held) > 0 {
			pause = time.Duration(float64(time.Second) / m.rate)
			if err := m.resumeAndCommit(); err != nil {
				emit(m.name, "unacknowledged", map[string]any{"error": err.Error()})
			}
		}
		m.lock.Unlock()
		time.Sleep(pause)
	}
}

func (m *hosted) resumeAndCommit() error {
	var fresh []place
	for each := range m.held {
		if _, known := m.positions[each]; !known {
			fresh = append(fresh, each)
		}
	}
	if len(fresh) > 0 {
		asked := time.Now().UnixNano()
		found, err := m.committed(fresh, 0)
		if err != nil {
			return err
		}
		for each, offset := range found {
			m.positions[each] = offset
		}
		emit(m.name, "resumed", map[string]any{"asked_ns": asked, "offsets": named(found)})
	}
	for each := range m.positions {
		m.positions[each]++
	}
	emit(m.name, "committing", map[string]any{"offsets": named(m.positions)})
	if err := m.commit(m.positions); err != nil {
		return err
	}
	emit(m.name, "acknowledged", map[string]any{"offsets": named(m.positions)})
	return nil
}

func (m *hosted) obey(command hostedCommand) {
	var result any
	var err error
	switch command.Op {
	case "commit":
		result, err = command.Offsets, m.commit(pairs(command.Offsets))
	case "committed":
		m.lock.Lock()
		wanted := m.everything()
		m.lock.Unlock()
		var found map[place]int64
		found, err = m.committed(wanted, -1001)
		result = named(found)
	case "identity":
		id, generation := m.client.GroupMetadata()
		result = map[string]any{"member_id": id, "generation": generation}
	}
	answer := map[string]any{"ok": err == nil, "tag": command.Tag, "result": result}
	if err != nil {
		answer["error"], answer["message"] = fmt.Sprintf("%T", err), err.Error()
	}
	emit(m.name, command.Op, answer)
}

func hostMembers(bootstrap string) {
	members := map[string]*hosted{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var command hostedCommand
		if err := json.Unmarshal(lines.Bytes(), &command); err != nil {
			panic(err)
		}
		switch command.Op {
		case "join":
			members[command.Name] = joinHosted(bootstrap, command)
		case "leave":
			go members[command.Name].leave()
		case "load":
			member := members[command.Name]
			member.lock.Lock()
			member.rate = command.Rate
			member.lock.Unlock()
		default:
			go members[command.Name].obey(command)
		}
	}
}
