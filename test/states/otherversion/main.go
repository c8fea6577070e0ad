// Otherversion stands in for another version of the kubelet or of containerd, by the name it is started under: what lies on disk after an
// upgrade, before the restart. All it does is say its version.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if filepath.Base(os.Args[0]) == "containerd" {
		fmt.Println("containerd github.com/containerd/containerd/v2 v2.99.0 0000000000000000000000000000000000000000")
		return
	}
	fmt.Println("Kubernetes v1.99.0")
}
