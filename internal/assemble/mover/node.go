package mover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/notify"
	"github.com/decamp/decamp/internal/targets/dir"
)

// Node is a fleet.Node with the Mover that it uses.
type Node struct {
	*fleet.Node
	Worker   fleetdb.Worker   // description of this worker in the fleet database
	mover    *Mover           // migrates the VMs; owned
	notifier *notify.Notifier // sends notifications; nil if no receivers are configured
}

// Close closes the sessions of the mover and unlocks the state directory.
func (n *Node) Close() error { return n.mover.Close() }

// lastNotifications bounds the time in which a command of the user sends its last notifications.
const lastNotifications = 10 * time.Second

// Run takes part in the fleet as fleet.Node.Run does, and sends notifications. A command of the user
// then sends the notifications of the end of its plan: no later process may do it.
func (n *Node) Run(ctx context.Context) error {
	if n.notifier == nil {
		return n.Node.Run(ctx)
	}
	sending, end := context.WithCancel(ctx)
	defer end()
	var notifier sync.WaitGroup
	notifier.Go(func() { n.notifier.Run(sending) })
	err := n.Node.Run(ctx)
	end()
	notifier.Wait()
	if n.mover.Command {
		last, end := context.WithTimeout(context.WithoutCancel(ctx), lastNotifications)
		defer end()
		n.notifier.Flush(last)
	}
	return err
}

// NodeOptions describe this process as a worker of a fleet.
type NodeOptions struct {
	Name     string   // name of the worker; this machine's name if empty
	Folders  []string // folders that it offers
	VMs      int      // VMs that it migrates at a time
	Trials   int      // trial boots at a time, of VMs whose plan requests them; at least 1
	Idle     bool     // no VMs are executed; the node only schedules
	Command  bool     // a command of the user, who executes plans of administrators with the user's files
	Hooks    bool     // runs hooks of plans
	Shared   string   // URL of the database that machines share; empty: none
	Insecure bool     // accepts a database whose certificate is not verified

	Notify assemble.Notify // receivers of notifications
}

// OpenNode opens the state directory and returns a node of the fleet with the database r. It fails if a
// folder cannot be offered.
func OpenNode(ctx context.Context, a *assemble.Assembler, r *fleetdb.Database, o NodeOptions) (*Node, error) {
	var err error
	if o.Name == "" {
		if o.Name, err = hostName(); err != nil {
			return nil, err
		}
	}
	receivers, err := a.Receivers(o.Notify)
	if err != nil {
		return nil, err
	}
	// offers are checked before the state directory is locked
	w := fleetdb.Worker{Name: o.Name, Version: a.Version, VMs: o.VMs}
	if w.Offers, err = offersOf(o.Folders); err != nil {
		return nil, err
	}
	m, err := Open(ctx, a, o.Shared, o.Insecure, w, r)
	if err != nil {
		return nil, err
	}
	m.Command, m.Hooks = o.Command, o.Hooks
	m.Trials = make(chan struct{}, o.Trials)
	n := &Node{mover: m, Worker: w, Node: fleet.New(fleet.Config{
		Database: r, Mover: m, Worker: w, Log: a.Log, Schedule: true, Drive: !o.Idle, PlanEnded: m.tracePlan,
	})}
	if receivers != nil {
		n.notifier = notify.New(r, receivers, fmt.Sprintf("%s/%d/%08x", o.Name, os.Getpid(), rand.Uint32()), a.Log)
	}
	return n, nil
}

// offersOf returns the storage ID of each folder that a worker offers. Two workers with the same ID
// offer the same storage.
func offersOf(folders []string) (map[string]string, error) {
	offers := map[string]string{}
	for _, folder := range folders {
		id, err := dir.StorageID(folder)
		if err != nil {
			return nil, err
		}
		offers[folder] = id
	}
	return offers, nil
}

// hostName returns the name of this machine, the default name of a worker.
func hostName() (string, error) {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "", fault.New(fault.Invalid, "this machine has no name: %w", err).WithHint("set the name of the worker with --name NAME")
	}
	return name, nil
}
