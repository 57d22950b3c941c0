package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/bombs"
)

// bombFigures inspects each disk of the corpus of hostile guests in a separate process.
func bombFigures(ctx context.Context, b *bench) error {
	dir, err := os.MkdirTemp(b.dir, "bombs")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "disk")
	var peak, cpu measurement
	all := bombs.All()
	for _, bomb := range all {
		if err := storeBomb(path, bomb.Disk()); err != nil {
			return fmt.Errorf("%s: %w", bomb.Name, err)
		}
		var t measurement
		if err := runChild(ctx, &t, "bomb", path, bomb.Limit); err != nil {
			return fmt.Errorf("%s: %w", bomb.Name, err)
		}
		t.Note = bomb.Name
		// The largest values of the corpus count, with the names of their disks.
		if t.Peak > peak.Peak {
			peak = t
		}
		if t.CPU > cpu.CPU {
			cpu = t
		}
	}
	corpus := fmt.Sprintf("%d disks; the most: ", len(all))
	b.atMost(128, Row{Figure: "guest: detect on the corpus of bombs, peak memory", Value: float64(peak.Peak) / (1 << 20), Unit: "MiB", Note: corpus + peak.Note})
	b.atMost(2, Row{Figure: "guest: detect on the corpus of bombs, processor time of a case", Value: cpu.CPU, Unit: "s", Note: corpus + cpu.Note})
	return nil
}

// storeBomb writes a disk to a sparse file.
func storeBomb(path string, image *bombs.Image) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(image.Size()); err != nil {
		return err
	}
	return image.Store(f)
}

// childBomb inspects a disk. If the disk exceeds a limit, the report must name the
// limit.
func childBomb(ctx context.Context, args []string) (t measurement, err error) {
	src, err := rawfile.OpenSource(args[0], rawfile.SourceOptions{})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return timeWork(func() error {
		r, err := guest.Detect(ctx, src)
		if err != nil {
			return err
		}
		named := func(w guest.Warning) bool {
			return strings.Contains(w.Text, "not examined") && strings.Contains(w.Text, args[1])
		}
		if args[1] != "" && !slices.ContainsFunc(r.Warnings, named) {
			return fmt.Errorf("the report does not name the limit %q: %v", args[1], r.Warnings)
		}
		return nil
	})
}
