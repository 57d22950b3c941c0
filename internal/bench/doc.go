// Package bench holds measurements of moving disks as rows: those that others published, which
// the product starts from, and those of one's own. All rates are in MiB/s, of allocated bytes.
//
// It measures nothing itself and knows no VMs; advise makes of rows what limits and what helps.
package bench
