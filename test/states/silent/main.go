// Silent is a server that takes every connection and never says a word, as one does whose program hangs.
package main

import (
	"fmt"
	"net"
	"os"
)

func main() {
	l, err := net.Listen("tcp", os.Args[1]) //nolint:noctx // it listens until it is killed
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var held []net.Conn // a connection that is forgotten would be closed
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, err, len(held))
			os.Exit(1)
		}
		held = append(held, c)
	}
}
