// Package workflow makes runs durable: a run is a named flow over plain data, cut into
// named steps whose results are remembered across kill -9 and power loss. It is the
// only importer of the engine behind it (DBOS Transact over SQLite, or over PostgreSQL where
// several executors share the record), and the door is narrow enough that another engine
// fits: names and JSON cross it, closures do not.
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
//	attempt.go           attempts: what this process knows of runs beside their record
//	record.go shared.go  record: reads and writes runs by the workflow engine
//	status.go stored.go fault.go signed.go
//	                     what a record holds, and its errors
//	sqlite.go postgres.go dial.go lock.go log.go config.go
//
// # What is promised
//
//   - A step that returned without error is never run again for that run.
//   - A step that was interrupted (kill -9, power, Close) runs again, from its start,
//     with the same input: steps must be safe to re-enter.
//   - A step that returned an error ends the attempt. Start on a failed or canceled run
//     forks it into a new attempt, which keeps the results of the good steps before the
//     first bad one and runs the rest. Every attempt stays on record.
//   - A run that was pending when the process died continues when it is started again,
//     or at Launch already where Config.Resume says so. Nothing else has to ask.
//   - One process owns a state directory at a time; a second one is refused by name.
//   - On PostgreSQL a run stays with the executor that began it until another takes it over.
//     Nothing that the first one does after that is recorded.
//   - A database that is away is waited for; runs neither fail for it nor lose a result. What
//     cannot be recorded for another reason ends the attempt, and Start goes on behind what was.
//
// # What is not
//
// Two processes of one executor's name are kept apart by the state directory's lock on one
// machine, and by the caller on two. Cancel tells other executors within about a second.
// The engine does not interrupt a running step. Cancel and Close end the context that
// the step was given, and then wait for it: a step that ignores its context holds them
// up. A flow's body must be deterministic: what it does between steps is done again on
// every continuation. The result of a step that returns after its run was canceled is not recorded,
// and the step runs again in the next attempt. Data crossing the door must survive a JSON round trip and must
// hold no secret: it lies in the state directory as readable text.
package workflow
