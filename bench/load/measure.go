package main

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// settleIn is the time under load before a window is measured.
const settleIn = 300 * time.Millisecond

type used struct {
	User   float64 `json:"user_s"`
	System float64 `json:"system_s"`
}

// tree returns the fields of /proc/PID/stat, from the state on, of a process and its descendants.
func tree(root int) map[int][]string {
	stats := map[int][]string{}
	children := map[int][]int{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it ended
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
		id, _ := strconv.Atoi(strings.Split(name, "/")[2])
		parent, _ := strconv.Atoi(fields[1])
		stats[id] = fields
		children[parent] = append(children[parent], id)
	}
	found := map[int][]string{}
	for todo := []int{root}; len(todo) > 0; todo = todo[1:] {
		todo = append(todo, children[todo[0]]...)
		if fields := stats[todo[0]]; fields != nil {
			found[todo[0]] = fields
		}
	}
	return found
}

// usage adds up the CPU time of a process and its descendants.
func usage(root int) used {
	number := func(text string) float64 { n, _ := strconv.ParseFloat(text, 64); return n }
	var sum used
	for _, fields := range tree(root) {
		sum.User += number(fields[11]) / 100
		sum.System += number(fields[12]) / 100
	}
	return sum
}

// resident returns the resident memory of a process and its descendants, in MiB. A page of a file that
// several of them map counts once, as for the memory limit of a container.
func resident(root int) float64 {
	private := 0.0
	shared := map[string]float64{} // by place in a file: the most that one process has
	for id := range tree(root) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", id))
		place := ""
		for _, line := range strings.Split(string(text), "\n") {
			fields := strings.Fields(line)
			if len(fields) < 2 {
				continue
			}
			kB, _ := strconv.ParseFloat(fields[1], 64)
			switch what := fields[0]; {
			case !strings.HasSuffix(what, ":"): // a mapping begins: addresses, rights, offset, device, inode, path
				place = strings.Join(fields[2:], " ")
				if fields[4] == "0" { // no file
					place = fmt.Sprint(id, " ", what)
				}
			case strings.HasPrefix(what, "Private_") && what != "Private_Hugetlb:":
				private += kB
			case strings.HasPrefix(what, "Shared_") && what != "Shared_Hugetlb:":
				shared[what+place] = max(shared[what+place], kB)
			}
		}
	}
	for _, kB := range shared {
		private += kB
	}
	return private / 1024
}

type result struct {
	Requests int     `json:"requests"`
	Errors   int     `json:"errors"`
	Code     int16   `json:"error_code"`
	Seconds  float64 `json:"seconds"`
	User     float64 `json:"user_s"`
	System   float64 `json:"system_s"`
	MiB      float64 `json:"resident_mib,omitempty"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	times    []int32
}

func (r *result) summarize(before, after used, took time.Duration) {
	r.User, r.System = after.User-before.User, after.System-before.System
	r.Seconds = took.Seconds()
	slices.Sort(r.times)
	r.Requests = len(r.times)
	if r.Requests > 0 {
		r.P50 = float64(r.times[r.Requests/2])
		r.P99 = float64(r.times[r.Requests*99/100])
	}
}

// requests sends on all connections at once for some seconds. With a rate, each request has a time at
// which it is due, and its latency counts from then.
func requests(members []*member, o order) (*result, error) {
	kinds := map[string]func(*member) kmsg.Request{
		"heartbeat": (*member).heartbeat, "commit": (*member).commit, "fetch": (*member).fetch,
		"consumer heartbeat": (*member).consumerHeartbeat}
	kind := kinds[o.What]
	if kind == nil {
		return nil, fmt.Errorf("unknown request %q", o.What)
	}
	start := time.Now()
	begin := start.Add(settleIn)
	end := begin.Add(time.Duration(o.Seconds * float64(time.Second)))
	sum := &result{}
	var mu sync.Mutex
	var before, after used
	var meter sync.WaitGroup
	meter.Go(func() {
		time.Sleep(time.Until(begin))
		before = usage(*pid)
		time.Sleep(time.Until(end))
		after = usage(*pid)
	})
	err := each(members, func(i int, m *member) error {
		one, err := stream(m, kind(m), begin, end, pace(o.Rate, len(members), i, start))
		mu.Lock()
		defer mu.Unlock()
		sum.times = append(sum.times, one.times...)
		sum.Errors += one.Errors
		sum.Code = max(sum.Code, one.Code)
		return err
	})
	meter.Wait()
	sum.summarize(before, after, end.Sub(begin))
	return sum, err
}

// pace returns a function that waits until the next request is due, and returns that time.
func pace(rate float64, members, i int, start time.Time) func() time.Time {
	if rate == 0 {
		return time.Now
	}
	step := time.Duration(float64(members) / rate * float64(time.Second))
	due := start.Add(step * time.Duration(i) / time.Duration(members))
	return func() time.Time {
		time.Sleep(time.Until(due))
		now := due
		due = due.Add(step)
		return now
	}
}

// stream sends one request after the other. It decodes a reply only if it differs from the last good one.
func stream(m *member, r kmsg.Request, begin, end time.Time, next func() time.Time) (result, error) {
	var sum result
	var good []byte
	out := frame(r)
	if err := m.conn.SetDeadline(end.Add(callLimit)); err != nil {
		return sum, err
	}
	for {
		due := next()
		if due.After(end) {
			return sum, nil
		}
		if _, err := m.conn.Write(out); err != nil {
			return sum, err
		}
		body, err := m.read()
		if err != nil {
			return sum, err
		}
		if !*echo && !bytes.Equal(body, good) {
			reply, err := decode(r, body)
			if err != nil {
				return sum, err
			}
			if code := errorCode(reply); code != 0 {
				sum.Errors++
				sum.Code = code
			} else {
				good = bytes.Clone(body)
			}
		}
		if due.After(begin) {
			sum.times = append(sum.times, int32(time.Since(due).Microseconds()))
		}
	}
}

// idle keeps members alive at the pace of a client.
func idle(members []*member, o order) (*result, error) {
	found, err := requests(members, order{
		What: cmp.Or(o.What, "heartbeat"), Seconds: o.Seconds, Rate: float64(len(members)) / o.Every})
	if err == nil {
		found.MiB = resident(*pid)
	}
	return found, err
}

// rebalance forms a group at once, and then lets all members join again with other metadata.
func rebalance(o order) (any, error) {
	members, err := connect(fmt.Sprintf("rebalance-%d-%d", os.Getpid(), opened.Add(1)), o.Members)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, m := range members {
			leave(m)
		}
	}()
	start := time.Now()
	if err := settle(members, subscription(0)); err != nil {
		return nil, err
	}
	formed := time.Since(start)
	before := usage(*pid)
	var rounds []float64
	for n := range o.Rounds {
		start := time.Now()
		if err := settle(members, subscription(byte(n+1))); err != nil {
			return nil, err
		}
		rounds = append(rounds, float64(time.Since(start).Microseconds())/1000)
	}
	after := usage(*pid)
	slices.Sort(rounds)
	cpu := after.User + after.System - before.User - before.System
	return map[string]any{
		"form_ms":  float64(formed.Microseconds()) / 1000,
		"round_ms": rounds[len(rounds)/2],
		"cpu_ms":   cpu * 1000 / float64(len(rounds)),
	}, nil
}

// leave closes the connection of a member. Its group stays without requests.
func leave(m *member) {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version = 3
	r.Group = m.group
	one := kmsg.NewLeaveGroupRequestMember()
	one.MemberID = m.id
	r.Members = append(r.Members, one)
	_, _ = m.call(r)
	_ = m.conn.(*net.TCPConn).Close()
}
