// Package migrate moves one VM: it is the pipeline, and reading Steps is reading the
// product.
//
//	preflight   refuse what cannot work, before anything is created; power off if asked
//	copy        every disk into an image, in parallel, each chunk hashed into a manifest
//	detect      what is inside the images
//	convert     decide the hardware; the compat profile leaves the guest as it is
//	verify      read the images back from the medium and compare every chunk
//	commit      publish: the point of no return
//
// # Terms
//
// A Rig is what one run works with: source, transport and target, logged in and open. A
// Permit is what the user allowed this time, such as powering the VM off. Facts are what
// the steps found out; flow keeps them after each step and hands them to the next, so
// that a process that was killed goes on where it was. A Record has plan, facts and events of
// a run: what is stored. A Run is a record with what a step needs beside it.
//
// A VM that runs is moved by package warm, which adds its own steps to a Migrator.
//
// # What is promised
//
//   - The source VM is powered off if the Permit says so. Nothing else about it changes.
//   - A chunk that is safe in a manifest is not copied again, unless the image turns out
//     not to hold it. A resumed copy checks a sample of each image against its manifest
//     and against the source first.
//   - Nothing is published that verify did not read back and find right.
//   - Until commit begins, Discard leaves neither image nor record. After it, nothing is
//     undone.
//   - Whatever fails is continued by the same command: the run finds itself by its plan.
//   - While a run is driven, nobody else has its images: another process is refused, also one
//     with records of its own, until this one is dead.
//   - A run that waits for its turn (Rig.Turn) has no snapshot, and its VM is not off for it.
//
// # What is not
//
// That the VM was not powered on and off between two attempts can only be sampled; what
// the sample finds is a Conflict. Cancelling stops within the requests in flight.
package migrate
