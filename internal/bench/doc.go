// Package bench holds measurements of moving disks as rows: those that others
// published, which the product starts from, and those of one's own. All rates are in
// MiB/s, of allocated bytes.
//
//	Setup     what the bytes went through, and its name
//	Row       one measurement of a setup
//	Effects   what one variable alone does: the pairs of rows that differ in nothing else
//	Curves    what more at a time gives, and from where on it gives nothing
//
// It measures nothing itself and knows no VMs; advise makes of rows what limits and
// what helps, report shows them, and matrix measures.
package bench
