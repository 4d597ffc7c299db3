package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// readForEver reads a topic of numbers as a member of a group, until it is killed. It prints the
// lines that tests/helpers/gateway/readers.py explains.
func readForEver(bootstrap, topic, group string, partitions int64) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(20*time.Second), kgo.HeartbeatInterval(time.Second),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(2*time.Second),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			say("assigned")
		}),
	)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for {
		fetches := client.PollRecords(ctx, 500)
		var read []*kgo.Record
		fetches.EachPartition(func(found kgo.FetchTopicPartition) {
			if len(found.Records) > 0 {
				readAll(found.Records, partitions)
				read = append(read, found.Records[len(found.Records)-1])
			}
		})
		if len(read) > 0 {
			commit(ctx, client, read)
		}
		client.AllowRebalance()
	}
}

func readAll(records []*kgo.Record, partitions int64) {
	first, partition := records[0].Offset, int64(records[0].Partition)
	for n, record := range records {
		value, err := strconv.ParseInt(string(record.Value), 10, 64)
		right := record.Offset*partitions + partition
		if err != nil || record.Offset != first+int64(n) || value != right {
			say("wrong", partition, record.Offset)
		}
	}
	say("read", partition, first, first+int64(len(records)))
}

func commit(ctx context.Context, client *kgo.Client, last []*kgo.Record) {
	if err := client.CommitRecords(ctx, last...); err != nil {
		fmt.Println("failed", err)
		return
	}
	for _, record := range last {
		say("committed", int64(record.Partition), record.Offset+1)
	}
}

func say(word string, numbers ...int64) {
	line := fmt.Sprint(word, " ", time.Now().UnixMilli())
	for _, each := range numbers {
		line += fmt.Sprint(" ", each)
	}
	fmt.Println(line)
}
