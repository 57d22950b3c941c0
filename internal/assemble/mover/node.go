package mover

import (
	"context"
	"os"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/targets/dir"
)

// Node is a fleet.Node with the Mover that it works with.
type Node struct {
	*fleet.Node
	Worker fleetdb.Worker
	mover  *Mover
}

// Close ends the sessions of the mover and gives the state directory up.
func (n *Node) Close() error { return n.mover.Close() }

// NodeOptions describe this process as a worker of a fleet.
type NodeOptions struct {
	Name     string   // name of the worker; this machine's name if empty
	Folders  []string // folders that it offers
	VMs      int      // VMs that it migrates at a time
	Trials   int      // trial boots at a time, of VMs whose plan requests them
	Idle     bool     // drives nothing
	Command  bool     // the user runs it: plans of administrators are the user's own
	Hooks    bool     // hooks of plans are run
	Shared   string   // URL of the database that machines share; empty: none
	Insecure bool     // the database need not be verified
}

// OpenNode makes this process part of the fleet that meets in r.
func OpenNode(ctx context.Context, a *assemble.Assembler, r *fleetdb.Roster, o NodeOptions) (*Node, error) {
	var err error
	if o.Name == "" {
		if o.Name, err = hostName(); err != nil {
			return nil, err
		}
	}
	w := fleetdb.Worker{Name: o.Name, Version: a.Version, VMs: o.VMs}
	if w.Offers, err = offersOf(o.Folders); err != nil {
		return nil, err
	}
	m, err := Open(ctx, a, o.Shared, o.Insecure, w, r)
	if err != nil {
		return nil, err
	}
	m.Command, m.Hooks = o.Command, o.Hooks
	m.Trials = make(chan struct{}, max(o.Trials, 1))
	return &Node{mover: m, Worker: w, Node: fleet.New(fleet.Config{
		Roster: r, Mover: m, Worker: w, Log: a.Log, Schedule: true, Drive: !o.Idle,
	})}, nil
}

// offersOf are the folders that a worker offers, with the ids of the storages behind them.
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

// hostName is this machine's, for the name of a worker.
func hostName() (string, error) {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "", fault.New(fault.Invalid, "this machine has no name: %w", err).WithHint("say what the worker is called with --name NAME")
	}
	return name, nil
}
