// Command buildguest builds the test guests into build/guest and prints their paths.
// It is run in the repository's root folder.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/decamp/decamp/test/guest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := guest.Build(ctx, "."); err != nil {
		fmt.Fprintln(os.Stderr, "buildguest:", err)
		os.Exit(1)
	}
	for _, name := range guest.Names() {
		if _, err := os.Stat(guest.File(".", name)); err == nil { // an image can need a program that is not installed
			fmt.Println(guest.File(".", name))
		}
	}
}
