package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// sessionMs is long: the members of one server stay while the other one is measured.
const sessionMs = 1_200_000

const (
	errNotCoordinator      = 16
	errIllegalGeneration   = 22
	errUnknownMember       = 25
	errRebalanceInProgress = 27
	errMemberIDRequired    = 79
)

// partitions of a commit or a fetch.
const partitions = 10

// An order ends with an error instead of waiting longer: callLimit for one answer, which is more than
// the 60 s of a rebalance, and settleLimit until all members of a group agree.
const (
	callLimit   = 75 * time.Second
	settleLimit = 90 * time.Second
)

var errOther = errors.New("another member of the group failed")

type member struct {
	conn       net.Conn
	buf        []byte
	group, id  string
	generation int32
	owned      []kmsg.ConsumerGroupHeartbeatRequestTopic
}

func frame(r kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("load")).AppendRequest(nil, r, 7)
}

func (m *member) read() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(m.conn, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if cap(m.buf) < n {
		m.buf = make([]byte, n)
	}
	_, err := io.ReadFull(m.conn, m.buf[:n])
	return m.buf[:n], err
}

// decode returns the reply in a frame without its length.
func decode(r kmsg.Request, body []byte) (kmsg.Response, error) {
	skip := 4
	if r.IsFlexible() {
		skip = 5 // no tags
	}
	if len(body) < skip {
		return nil, errors.New("a short reply")
	}
	reply := r.ResponseKind()
	reply.SetVersion(r.GetVersion())
	return reply, reply.ReadFrom(append([]byte(nil), body[skip:]...))
}

func (m *member) call(r kmsg.Request) (kmsg.Response, error) {
	if err := m.conn.SetDeadline(time.Now().Add(callLimit)); err != nil {
		return nil, err
	}
	if _, err := m.conn.Write(frame(r)); err != nil {
		return nil, err
	}
	body, err := m.read()
	if err != nil {
		return nil, err
	}
	return decode(r, body)
}

// join returns when the member is in a generation with an assignment.
func (m *member) join(metadata []byte) error {
	for try := 0; try < 1000; try++ {
		r := kmsg.NewPtrJoinGroupRequest()
		r.Version = 5
		r.Group, r.MemberID, r.ProtocolType = m.group, m.id, "consumer"
		r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = sessionMs, 60_000
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: metadata}}
		answer, err := m.call(r)
		if err != nil {
			return err
		}
		joined := answer.(*kmsg.JoinGroupResponse)
		m.id = joined.MemberID
		code := joined.ErrorCode
		if code == 0 {
			m.generation = joined.Generation
			if code, err = m.sync(joined); err != nil || code == 0 {
				return err
			}
		}
		switch code {
		case errMemberIDRequired, errIllegalGeneration, errRebalanceInProgress:
		case errUnknownMember:
			m.id = ""
		case 14, 15, errNotCoordinator:
			time.Sleep(50 * time.Millisecond)
		default:
			return fmt.Errorf("join: error code %d", code)
		}
	}
	return errors.New("join: too many tries")
}

func (m *member) sync(joined *kmsg.JoinGroupResponse) (int16, error) {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Version = 3
	r.Group, r.Generation, r.MemberID = m.group, m.generation, m.id
	if joined.LeaderID == joined.MemberID {
		for _, each := range joined.Members {
			r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{
				MemberID: each.MemberID, MemberAssignment: make([]byte, 100)})
		}
	}
	answer, err := m.call(r)
	if err != nil {
		return 0, err
	}
	return answer.(*kmsg.SyncGroupResponse).ErrorCode, nil
}

// settle brings all members into one generation: each joins, and heartbeats until all have the same.
// If one fails, the others would wait for it in vain, so all end.
func settle(members []*member, metadata []byte) error {
	generations := make([]atomic.Int32, len(members))
	var failed atomic.Bool
	end := time.Now().Add(settleLimit)
	agreed := func() bool {
		first := generations[0].Load()
		for i := range generations {
			if first == 0 || generations[i].Load() != first {
				return false
			}
		}
		return true
	}
	follow := func(i int, m *member) error {
		for {
			generations[i].Store(0)
			if err := m.join(metadata); err != nil {
				return err
			}
			generations[i].Store(m.generation)
			for !agreed() {
				if failed.Load() {
					return errOther
				}
				if time.Now().After(end) {
					return fmt.Errorf("%s: no common generation in %v", m.group, settleLimit)
				}
				answer, err := m.call(m.heartbeat())
				if err != nil {
					return err
				}
				if answer.(*kmsg.HeartbeatResponse).ErrorCode != 0 {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			if agreed() {
				return nil
			}
		}
	}
	return each(members, func(i int, m *member) error {
		err := follow(i, m)
		if err != nil {
			failed.Store(true)
		}
		return err
	})
}

// each runs a function for all members at once, and returns the error that ended the others.
func each(members []*member, run func(int, *member) error) error {
	errs := make([]error, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() { errs[i] = run(i, m) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, errOther) {
			return err
		}
	}
	return nil
}

var opened atomic.Int32

func connect(group string, count int) ([]*member, error) {
	members := make([]*member, count)
	for i := range members {
		conn, err := net.DialTimeout("tcp", *addr, callLimit)
		if err != nil {
			return nil, err
		}
		id := fmt.Sprintf("load-%08d-0123-4567-89ab-cdef01234567", i)
		members[i] = &member{conn: conn, group: group, generation: 1}
		if *echo {
			members[i].id = id
		}
	}
	return members, nil
}

// open makes groups of settled members, some groups at once.
func open(name string, groups, each int) ([]*member, error) {
	var all []*member
	var mu sync.Mutex
	var first error
	var waits sync.WaitGroup
	places := make(chan struct{}, 64)
	for g := range groups {
		places <- struct{}{}
		waits.Go(func() {
			defer func() { <-places }()
			group := fmt.Sprintf("%s-%d-%d-%d", name, os.Getpid(), opened.Add(1), g)
			mu.Lock()
			ended := first != nil
			mu.Unlock()
			if ended {
				return
			}
			members, err := connect(group, each)
			if err == nil && !*echo {
				err = settle(members, subscription(0))
			}
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = err
			}
			all = append(all, members...)
		})
	}
	waits.Wait()
	return all, first
}

// subscription is a consumer's, version 0, to the topic, with one byte of user data.
func subscription(user byte) []byte {
	metadata := []byte{0, 0, 0, 0, 0, 1, 0, byte(len(topic))}
	return append(append(metadata, topic...), 0, 0, 0, 1, user)
}

func (m *member) heartbeat() kmsg.Request {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Version = 4
	r.Group, r.Generation, r.MemberID = m.group, m.generation, m.id
	return r
}

func (m *member) commit() kmsg.Request {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version = 8
	r.Group, r.Generation, r.MemberID = m.group, m.generation, m.id
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	for p := range partitions {
		row := kmsg.NewOffsetCommitRequestTopicPartition()
		row.Partition, row.Offset = int32(p), 1_000_000+int64(p)
		t.Partitions = append(t.Partitions, row)
	}
	r.Topics = append(r.Topics, t)
	return r
}

func (m *member) fetch() kmsg.Request {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Version = 7
	r.Group = m.group
	t := kmsg.NewOffsetFetchRequestTopic()
	t.Topic = topic
	for p := range partitions {
		t.Partitions = append(t.Partitions, int32(p))
	}
	r.Topics = append(r.Topics, t)
	return r
}

// errorCode returns the first error code of a reply.
func errorCode(reply kmsg.Response) int16 {
	var codes []int16
	switch r := reply.(type) {
	case *kmsg.HeartbeatResponse:
		codes = append(codes, r.ErrorCode)
	case *kmsg.ConsumerGroupHeartbeatResponse:
		codes = append(codes, r.ErrorCode)
	case *kmsg.OffsetCommitResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
	case *kmsg.OffsetFetchResponse:
		codes = append(codes, r.ErrorCode)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
	}
	for _, code := range codes {
		if code != 0 {
			return code
		}
	}
	return 0
}
