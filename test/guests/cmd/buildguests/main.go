// Command buildguests builds the real guests into build/guests, as root, and prints their paths.
// It is run in the repository's root folder.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/decamp/decamp/test/guests"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := guests.Build(ctx, "."); err != nil {
		fmt.Fprintln(os.Stderr, "buildguests:", err)
		os.Exit(1)
	}
	for _, name := range guests.Names() {
		fmt.Println(guests.File(".", name))
	}
}
