package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	atOnce = 50
	pause  = 700 * time.Millisecond
)

var transactions int

// copyForEver copies a topic exactly once, until it is killed. Every third transaction is aborted. In every
// tenth it prints "open" and waits a moment: then a test may kill it, or somebody else.
func copyForEver(bootstrap, source, sink, group, id string) {
	for {
		err := copyOnce(bootstrap, source, sink, group, id)
		// what an application does that is fenced: start again
		fmt.Println("again", err)
		time.Sleep(100 * time.Millisecond)
	}
}

func copyOnce(bootstrap, source, sink, group, id string) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(id), kgo.TransactionTimeout(10*time.Second),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(time.Second),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(2*time.Second),
		kgo.DefaultProduceTopic(sink),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	ctx := context.Background()
	for {
		fetches := session.PollRecords(ctx, atOnce)
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		produced := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Value: record.Value}, produced.Promise())
		})
		transactions++
		if transactions%10 == 0 {
			fmt.Println("open")
			time.Sleep(pause)
		}
		wanted := kgo.TransactionEndTry(produced.Err() == nil && transactions%3 != 0)
		committed, err := session.End(ctx, wanted)
		if err != nil {
			return err
		}
		if committed {
			fmt.Println("committed")
		}
	}
}
