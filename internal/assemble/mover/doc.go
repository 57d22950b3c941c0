// Package mover implements fleet.Mover: it migrates the VMs of plans as decamp migrate migrates
// one VM.
//
//	Mover       implements fleet.Mover
//	planSource  a plan with its session and transports, which its VMs share
//	pacer       limits the rates of transfers, for plans and operators
//	runEvents   converts events of runs to the progress of the fleet
//	cleaner     reverts changes on hosts from which no VM is migrated any more
//
// The machine that executes a plan checks its permissions again: the signature, the role of its
// author, the access file, the folders that the worker offers, and whether the worker runs hooks.
// See authority.go.
package mover
