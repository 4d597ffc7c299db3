// franz-go: go run . 127.0.0.1:9092
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	bootstrap := "127.0.0.1:9092"
	if len(os.Args) > 1 {
		bootstrap = os.Args[1]
	}
	ctx := context.Background()
	assigned := make(chan struct{}, 1)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup("billing"),
		kgo.ConsumeTopics("orders"),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			assigned <- struct{}{}
		}),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	<-assigned

	client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{
		"orders": {0: {Epoch: -1, Offset: 42}},
	}, nil)
	offsets, err := kadm.NewClient(client).FetchOffsets(ctx, "billing")
	if err != nil {
		log.Fatal(err)
	}
	found, _ := offsets.Lookup("orders", 0)
	fmt.Printf("orders 0: %d\n", found.At)
}
