// Command load drives one server for bench/beside_kafka.py. It takes one order a line on standard
// input and answers each with one line of JSON. Connections and members stay between orders, so two
// servers can be measured by turns, both warm. Requests are encoded once and sent again.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
)

// topic has at least ten partitions on the server.
const topic = "bench"

var (
	addr = flag.String("addr", "", "the server, HOST:PORT")
	pid  = flag.Int("pid", 0, "its process: CPU time and memory, children included")
	echo = flag.Bool("echo", false, "the server sends each frame back: send what members would")
)

type order struct {
	Do      string  `json:"do"`
	What    string  `json:"what"`
	Groups  int     `json:"groups"`
	Members int     `json:"members"`
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"rate"`
	Rounds  int     `json:"rounds"`
	Every   float64 `json:"every_s"`
	// Of the consumer protocol: the members that send, and the topic with its partitions.
	Pool       string `json:"pool"`
	Topic      string `json:"topic"`
	Partitions int    `json:"partitions"`
}

// pools holds the members by the name of their order.
var pools = map[string][]*member{}

func do(o order) (any, error) {
	switch o.Do {
	case "open":
		members, err := open(o.What, o.Groups, o.Members)
		pools[o.What] = members
		return map[string]any{"members": len(members)}, err
	case "requests":
		return requests(pools[cmp.Or(o.Pool, "few")], o)
	case "idle":
		return idle(pools[cmp.Or(o.Pool, "idle")], o)
	case "open consumers":
		return openTogether(o)
	case "close":
		return closePool(o.What)
	case "rebalance":
		return rebalance(o)
	case "usage":
		return usage(*pid), nil
	}
	return nil, errors.New("unknown order " + o.Do)
}

func main() {
	flag.Parse()
	in := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var o order
		err := json.Unmarshal(in.Bytes(), &o)
		var answer any
		if err == nil {
			answer, err = do(o)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "load: %s: %s\n", in.Text(), err)
			os.Exit(1)
		}
		if out.Encode(answer) != nil {
			os.Exit(1)
		}
	}
}
