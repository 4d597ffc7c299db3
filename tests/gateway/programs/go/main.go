// Programs for the tests of the gateway:
//
//	gateway copy BOOTSTRAP SOURCE SINK GROUP TRANSACTIONAL_ID
//	gateway kfake
package main

import "os"

func main() {
	switch os.Args[1] {
	case "copy":
		copyForEver(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	case "kfake":
		serveWithoutGroups()
	}
}
