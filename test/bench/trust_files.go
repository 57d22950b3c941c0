package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// fileSeeds is the number of disks that each writer writes.
const fileSeeds = 25

// fileTally contains the results of test/differential for one reader.
type fileTally struct{ Right, Explained, Wrong, Refused int }

// foreignFiles runs the differential test with more seeds than a test run: other
// programs write images, and decamp and other programs read them.
func foreignFiles(ctx context.Context, b *bench) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-count", "1", "-timeout", "60m", "-v", "-run", "^TestAllReadersReadWrittenDisk$", "./test/differential")
	cmd.Env = append(os.Environ(), fmt.Sprintf("DECAMP_DIFFERENTIAL=%d", fileSeeds))
	out, failed := cmd.CombinedOutput()
	_, text, found := bytes.Cut(out, []byte(": tallies "))
	if !found {
		return fmt.Errorf("test/differential: %w: %s", errors.Join(failed, errors.New("no tallies")), out)
	}
	var by map[string]fileTally
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&by); err != nil {
		return fmt.Errorf("test/differential: %w", err)
	}
	ours, pipe, qemu := by["decamp"], by["decamp from a pipe"], by["qemu-img"]
	note := fmt.Sprintf("%d files and %d streams read right, %d and %d explained in docs/formats/vmdk.md", ours.Right, pipe.Right, ours.Explained, pipe.Explained)
	peers := []Peer{{Name: "qemu-img", Value: float64(qemu.Wrong), Note: fmt.Sprintf("%d read right, %d explained", qemu.Right, qemu.Explained)}}
	b.atMost(0, Row{Figure: "files by others, all writers and subformats: wrong", Value: float64(ours.Wrong + pipe.Wrong), Unit: "files", Note: note, Peers: peers})
	b.atMost(0, Row{Figure: "files by others, all writers and subformats: refused that qemu-img reads", Value: float64(ours.Refused + pipe.Refused), Unit: "files", Note: note})
	b.atLeast(fileSeeds, Row{Figure: "files by others: read right", Value: float64(ours.Right), Unit: "files", Note: note})
	return failed
}
