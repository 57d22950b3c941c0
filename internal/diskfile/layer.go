package diskfile

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/vmdk"
)

// A Layer is one disk of a chain, as people and scripts are shown it.
type Layer struct {
	Name       string   `json:"name"`
	CreateType string   `json:"createType,omitempty"` // createType of the descriptor
	Format     string   `json:"format"`
	Size       int64    `json:"size"`                // bytes
	Grain      int64    `json:"grain,omitempty"`     // bytes: VMDK's grain, qcow2's cluster
	CID        string   `json:"cid,omitempty"`       // eight hex digits
	ParentCID  string   `json:"parentCID,omitempty"` // empty for a base
	Extents    []Extent `json:"extents,omitempty"`
	Usage      *Usage   `json:"usage,omitempty"` // nil if unknown
}

// An Extent is a piece of a layer, with or without a separate file.
type Extent struct {
	Off    int64  `json:"off"`
	Len    int64  `json:"len"`
	Format string `json:"format"`
	File   string `json:"file,omitempty"`
}

// Usage counts the bytes of a layer or of the whole disk by kind.
type Usage struct {
	Data   int64 `json:"data"`             // bytes that lie in a file
	Zero   int64 `json:"zero"`             // bytes known to be zeros
	Absent int64 `json:"absent,omitempty"` // bytes left to the parent
	Runs   int64 `json:"runs"`             // pieces, neighbours of one kind and place counted as one
}

// Layers describes the disk's layers, the youngest first, and counts what each holds: that
// reads all tables.
func (f *File) Layers(ctx context.Context) ([]Layer, error) {
	switch f.Kind {
	case VMDK:
		return f.vmdkLayers(ctx)
	case QCOW2:
		return f.qcow2Layers(), nil
	}
	return []Layer{{Name: f.Path, Format: string(Raw), Size: f.Size()}}, nil
}

func (f *File) vmdkLayers(ctx context.Context) ([]Layer, error) {
	var out []Layer
	files := f.vmdk.Files()
	for i, v := range f.vmdk.Layers() {
		l := describeVMDK(v, files)
		u, err := f.usageOf(ctx, i, v.Size)
		if err != nil {
			return nil, fmt.Errorf("count what %s holds: %w", v.Name, err)
		}
		l.Usage = &u
		out = append(out, l)
	}
	return out, nil
}

func describeVMDK(v vmdk.Layer, files []string) Layer {
	l := Layer{Name: v.Name, CreateType: v.CreateType, Format: string(v.Format), Size: v.Size, Grain: v.Grain}
	if v.Descriptor != nil {
		l.CID = fmt.Sprintf("%08x", uint32(v.CID))
	}
	if v.ParentCID != vmdk.NoParent {
		l.ParentCID = fmt.Sprintf("%08x", uint32(v.ParentCID))
	}
	for _, p := range v.Parts {
		e := Extent{Off: p.Off, Len: p.Len, Format: string(p.Format)}
		if p.File >= 0 {
			e.File = files[p.File]
		}
		l.Extents = append(l.Extents, e)
	}
	return l
}

// usageOf counts layer i.
func (f *File) usageOf(ctx context.Context, i int, size int64) (u Usage, err error) {
	err = f.vmdk.LayerRuns(ctx, i, disk.Range{Len: size}, func(r vmdk.Run) bool {
		u.Runs++
		switch r.Kind {
		case vmdk.Data:
			u.Data += r.Len
		case vmdk.Zero:
			u.Zero += r.Len
		default:
			u.Absent += r.Len
		}
		return true
	})
	return u, err
}

func (f *File) qcow2Layers() []Layer {
	var out []Layer
	for _, l := range f.qcow2.Layers() {
		out = append(out, Layer{Name: l.Path, Format: l.Format, Size: l.Size, Grain: l.ClusterSize})
	}
	return out
}

// usageWindow is how much is described at once.
const usageWindow = 1 << 30

// Usage counts what the disk as a whole reads as.
func (f *File) Usage(ctx context.Context) (u Usage, err error) {
	last := disk.Kind(255)
	for off := int64(0); off < f.Size(); off += usageWindow {
		extents, err := f.Extents(ctx, disk.Range{Off: off, Len: min(usageWindow, f.Size()-off)})
		if err != nil {
			return Usage{}, err
		}
		for _, e := range extents {
			if e.Kind != last {
				u.Runs++
			}
			if last = e.Kind; e.Kind == disk.Zero {
				u.Zero += e.Len
			} else {
				u.Data += e.Len
			}
		}
	}
	return u, nil
}
