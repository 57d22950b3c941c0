// Package workflow makes runs durable: a run is a named flow over plain data, divided into named steps whose
// results survive kill -9 and power loss. It is the only importer of its engine (DBOS Transact on SQLite, or
// on PostgreSQL if several executors share the record). Its interface is independent of the engine: it
// consists of names and JSON, without closures.
//
// # Terms
//
// A flow is registered code; a run is one execution of it under an id the caller chose.
// A step is a named function from plain data to plain data. An attempt is one try of a
// run: the first is called like the run ("web01-3f9a1c"), later ones "run/2", "run/3" …
// An executor is a process that runs flows, by a name that it keeps.
//
// # Files
//
// References point down this list.
//
//	engine.go start.go stop.go wait.go body.go step.go
//	                     Engine: what callers do with runs; a flow and its steps as the engine calls them
//	watch.go             watcher: what other executors did
//	attempt.go           attempts: the state of runs in this process, besides their record
//	record.go shared.go  record: reads and writes runs by the workflow engine
//	status.go stored.go fault.go signed.go
//	                     what a record holds, and its errors
//	sqlite.go postgres.go dial.go lock.go log.go config.go
//
// # Guarantees
//
//   - A step that returned without error never runs again for that run.
//   - A step that was interrupted (kill -9, power, Close) runs again from its start, with the same
//     input: steps must be safe to repeat.
//   - A step that returned an error ends the attempt. Start on a failed or canceled run forks it into a
//     new attempt, which keeps the results of the steps before the first bad one and runs the rest.
//     All attempts stay recorded.
//   - A run that was pending when the process died continues when it is started again, or at Launch if
//     Config.Resume selects it.
//   - One process owns a state directory at a time; the error of a second one names the first.
//   - On PostgreSQL a run stays with its executor until another takes it over. Nothing that the former
//     executor does after that is recorded.
//   - Runs wait for an unreachable database; they neither fail nor lose a result. A record that fails
//     for another reason ends the attempt, and Start continues after the last record.
//
// # Limits
//
// The lock of the state directory prevents two processes with one executor's name on one machine; on two
// machines the caller must prevent that. Other executors notice Cancel within about a second. The engine
// does not interrupt a running step: Cancel and Close end the step's context and wait for the step. A flow's
// body must be deterministic: its code between steps is repeated on every continuation. The result of a step
// that returns after its run was canceled is not recorded, and the step runs again in the next attempt. Data
// of flows must survive a JSON round trip and contain no secrets: the state directory has it as plain text.
package workflow
