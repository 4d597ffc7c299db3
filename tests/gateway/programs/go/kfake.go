package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"
)

// groupKeys are all APIs of groups. FindCoordinator (10) stays, for transactions.
var groupKeys = []int16{
	8, 9, 11, 12, 13, 14, 15, 16, 25, 28, 42, 47, 68, 69, 76, 77, 78, 79, 90, 91, 92,
}

// serveWithoutGroups is a cluster of three brokers with topics and transactions, and no groups at all. It
// prints its addresses, and serves until its stdin ends.
func serveWithoutGroups() {
	versions := kversion.Stable()
	for _, key := range groupKeys {
		versions.SetMaxKeyVersion(key, -1)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.MaxVersions(versions))
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	if err := json.NewEncoder(os.Stdout).Encode(cluster.ListenAddrs()); err != nil {
		panic(err)
	}
	_, _ = fmt.Scanln()
}
