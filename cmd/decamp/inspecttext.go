package main

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/decamp/decamp/internal/diskfile"
)

// writeInspected prints what was found: the disk, its layers, their files, and what is
// odd.
func (a *app) writeInspected(d inspected) error {
	if a.json {
		return a.print(d)
	}
	fmt.Fprintf(a.out, "%s: %s, %s (%d bytes)\n", plain(filepath.Base(d.File)), d.Kind, size(d.Size), d.Size)
	fmt.Fprintf(a.out, "Reads as %s of data and %s of zeros (runs: %d).\n\n", size(d.Usage.Data), size(d.Usage.Zero), d.Usage.Runs)
	a.writeLayers(d.Layers)
	a.writeExtents(d.Layers)
	if len(d.Warnings) > 0 {
		fmt.Fprintln(a.out, "\nWarnings")
		for _, w := range d.Warnings {
			fmt.Fprintf(a.out, "  %s\n", plain(w))
		}
	}
	if d.Guest != nil {
		a.writeGuest(*d.Guest)
	}
	return nil
}

func (a *app) writeLayers(layers []diskfile.Layer) {
	t := newTable("LAYER", "TYPE", "FORMAT", "SIZE", "GRAIN", "CID", "PARENT", "DATA", "ZERO", "ABSENT", "RUNS")
	t.alignRight(3, 4, 7, 8, 9, 10)
	for _, l := range layers {
		row := []string{
			plain(l.Name), cmp.Or(plain(l.CreateType), "-"), l.Format, size(l.Size),
			sizeOrNone(l.Grain), cmp.Or(l.CID, "-"), cmp.Or(l.ParentCID, "-"),
		}
		t.add(append(row, usageCells(l.Usage)...)...)
	}
	t.write(a.out)
}

func usageCells(u *diskfile.Usage) []string {
	if u == nil {
		return []string{"-", "-", "-", "-"}
	}
	return []string{size(u.Data), size(u.Zero), size(u.Absent), fmt.Sprint(u.Runs)}
}

func sizeOrNone(n int64) string {
	if n == 0 {
		return "-"
	}
	return size(n)
}

// writeExtents lists the files, newest layer first.
func (a *app) writeExtents(layers []diskfile.Layer) {
	t := newTable("FILE", "FORMAT", "FROM", "LENGTH")
	t.alignRight(2, 3)
	rows := 0
	for _, l := range layers {
		for _, e := range l.Extents {
			t.add(cmp.Or(plain(e.File), "(none)"), e.Format, size(e.Off), size(e.Len))
			rows++
		}
	}
	if rows > 0 {
		fmt.Fprintln(a.out)
		t.write(a.out)
	}
}
