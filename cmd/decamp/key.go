package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetkey"
)

const keyHelp = `
Make and show the key of a fleet. Servers and workers sign the plans that they put into a common
database with it, and carry out only what has such a signature. All of them need the same file
(--fleet-key), and nobody else may read it. On a single machine without --db the key is made by
itself, as fleet.key in the state directory.

To replace a key, run decamp key add FILE, copy FILE to all machines and restart decamp there.
Then move the new last line to the top, copy and restart again. When the plans that the old key
signed have ended, remove its line, copy and restart. The first key signs, all keys verify.
`

const keyExamples = `
decamp key new /etc/decamp/fleet.key
decamp worker --join postgres://decamp@db/decamp --fleet-key fleet.key --offer /srv/vm
decamp key list /etc/decamp/fleet.key
`

func newKey(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "key COMMAND", Short: "Make the key that signs plans in the fleet's database", Long: trimHelp(keyHelp), Example: trimHelp(keyExamples),
		Annotations: exitCodes(), Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newKeyCommand(p, "new", "Make a key file", "Make a file with a new key, which only its owner can read. A file that exists is not replaced.",
			fleetkey.Create, exit{fault.Conflict, "the file exists"}),
		newKeyCommand(p, "add", "Add a key to a key file", "Append a new key to a key file. It verifies signatures, and signs once its line is the first.",
			fleetkey.Add, exit{fault.NotFound, "the file does not exist"}, exit{fault.Full, "the file has too many keys"}),
		newKeyCommand(p, "list", "List the keys of a key file", "List the ids of the keys of a file, the one that signs first. An id is no secret. Files with the\nsame ids have the same keys.",
			fleetkey.Load, exit{fault.NotFound, "the file does not exist"}))
	return cmd
}

// newKeyCommand is a command that does something with a key file and prints the ids of its keys.
func newKeyCommand(p *program, name, short, long string, do func(path string) (*fleetkey.Keys, error), more ...exit) *cobra.Command {
	denied := exit{fault.Denied, "the file may not be used, or others may read it"}
	return &cobra.Command{
		Use: name + " FILE", Short: short, Long: long, Example: "decamp key " + name + " /etc/decamp/fleet.key",
		Args: exactArgs("FILE"), Annotations: exitCodes(append(more, denied)...),
		RunE: p.withLog(func(_ *cobra.Command, args []string) error {
			keys, err := do(args[0])
			if err != nil {
				return err
			}
			if p.out.json {
				return p.out.printJSON(map[string][]string{"keys": keys.IDs()})
			}
			for i, id := range keys.IDs() {
				does := "signs and verifies"
				if i > 0 {
					does = "verifies"
				}
				if _, err := fmt.Fprintf(p.out, "%s  %s\n", id, does); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}
