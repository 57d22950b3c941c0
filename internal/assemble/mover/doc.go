// Package mover is the fleet's Mover: it carries out the VMs of plans as decamp migrate does one.
//
//	Mover       implements fleet.Mover
//	planSource  a plan with its session and transports, which VMs of the plan share
//	pacer       keeps transfers within the rates of plans and operators
//	drive       turns events of runs into the fleet's progress
//	tidier      puts back what is left on hosts that no VM is moved from any more
//
// What a plan may do is checked here again, on the machine that carries it out: its signature, the role of its author,
// the access file, the folders that the worker offers, and whether its hooks are run. See authority.go.
package mover
