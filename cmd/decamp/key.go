package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetkey"
)

const keyHelp = `
Create and show the key of a fleet. Servers and workers sign the plans in the shared database
with it, and execute only plans with such a signature. All of them require the same file
(--fleet-key), and no other user may read it. A single machine without --db creates the key
itself, as fleet.key in the state directory.

To replace a key, run decamp key add FILE, copy FILE to all machines and restart decamp there.
Then move the new last line to the top, copy and restart again. When the plans that the old
key signed have ended, remove its line, copy and restart. The first key signs, all keys
verify.
`

const keyExamples = `
decamp key new /etc/decamp/fleet.key
decamp worker --join postgres://decamp@db/decamp --fleet-key fleet.key --offer /srv/vm
decamp key list /etc/decamp/fleet.key
`

// newKey returns the command decamp key with its subcommands.
func newKey(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "key COMMAND", Short: "Create the key that signs plans in the fleet database", Long: trimHelp(keyHelp), Example: trimHelp(keyExamples),
		Annotations: exitCodes(), Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newKeyCommand(p, "new", "Create a key file", "Create a file with a new key, which only its owner can read. An existing file is not replaced.",
			fleetkey.Create, exit{fault.Conflict, "the file exists"}),
		newKeyCommand(p, "add", "Add a key to a key file", "Append a new key to a key file. It verifies signatures. It signs when its line is the first.",
			fleetkey.Add, exit{fault.NotFound, "the file does not exist"}, exit{fault.Full, "the file has too many keys"}),
		newKeyCommand(p, "list", "List the keys of a key file", "List the IDs of the keys in a file; the first one signs. An ID is not a secret. Files with the\nsame IDs have the same keys.",
			fleetkey.Load, exit{fault.NotFound, "the file does not exist"}))
	return cmd
}

// newKeyCommand returns a command that calls do with the path of a key file, and prints the IDs of its
// keys.
func newKeyCommand(p *program, name, short, long string, do func(path string) (*fleetkey.Keys, error), more ...exit) *cobra.Command {
	denied := exit{fault.Denied, "the file must not be used, or other users may read it"}
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
