// Programs for the tests of the gateway:
//
//	gateway copy BOOTSTRAP SOURCE SINK GROUP TRANSACTIONAL_ID
//	gateway read BOOTSTRAP TOPIC GROUP PARTITIONS
//	gateway kfake
package main

import (
	"os"
	"strconv"
)

func main() {
	switch os.Args[1] {
	case "copy":
		copyForEver(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	case "read":
		partitions, err := strconv.ParseInt(os.Args[5], 10, 64)
		if err != nil {
			panic(err)
		}
		readForEver(os.Args[2], os.Args[3], os.Args[4], partitions)
	case "kfake":
		serveWithoutGroups()
	}
}
