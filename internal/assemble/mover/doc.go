// Package mover is the fleet's Mover: it migrates the VMs of plans as decamp migrate migrates one.
//
//	Mover       implements fleet.Mover
//	planSource  a plan with its session and transports, which its VMs share
//	pacer       keeps transfers within the rates of plans and operators
//	drive       turns events of runs into the fleet's progress
//	tidier      reverts changes on hosts from which no VM is migrated any more
//
// The permissions of a plan are checked again on the machine that executes it: its signature, the role
// of its author, the access file, the folders that the worker offers, and whether its hooks are run.
// See authority.go.
package mover
