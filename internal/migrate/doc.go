// Package migrate migrates one VM in a list of steps (Steps):
//
//	preflight   refuses a migration that cannot work; powers the VM off if permitted
//	copy        copies each disk into an image, in parallel; hashes each chunk into a manifest
//	detect      reads the contents of the images: partitions, operating system
//	convert     chooses the hardware; the compat profile leaves the guest unchanged
//	verify      reads the images back from the medium and compares each chunk
//	commit      publishes the VM; it cannot be undone by Discard
//
// # Terms
//
// An Environment has the open connections of one run: source, transport and target. A Permit has the
// permissions of this call, such as powering the VM off. Facts are the results of the steps;
// package workflow stores them after each step and passes them to the next, so that a run
// continues after its process was killed. A Record is the stored data of a run: plan, facts
// and events. A Run is a record with the other parts that a step needs.
//
// Package warm migrates running VMs; it adds its steps to a Migrator.
//
// # Guarantees
//
//   - The source VM is powered off only if the Permit allows it. The run changes nothing else
//     about it.
//   - A durable chunk of a manifest is not copied again, unless the image does not contain it.
//     A resumed copy first compares a sample of each image with its manifest and the source.
//   - Only images that verify read back and compared are published.
//   - Until commit begins, Discard removes all images and records. After that, it refuses.
//   - The same command continues a failed run: its plan identifies it.
//   - While a process executes a run, other processes cannot use its images, even with a
//     separate state directory, until the process has ended.
//   - A run that waits for its transfer slot (Environment.TransferSlot) has no snapshot, and its VM is not off
//     because of the wait.
//
// # Limits
//
// Whether the VM was powered on and off between two attempts is only sampled; a difference in
// the sample is a Conflict. Canceling stops within the requests in flight.
package migrate
