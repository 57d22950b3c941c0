package diskfile

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/vmdk"
)

// A Layer describes one disk of a chain, for users and scripts.
type Layer struct {
	Name       string   `json:"name"`                 // name of the file that was opened
	CreateType string   `json:"createType,omitempty"` // createType of the descriptor
	Format     string   `json:"format"`               // format of the first extent with a file
	Size       int64    `json:"size"`                 // bytes
	Grain      int64    `json:"grain,omitempty"`      // bytes: VMDK's grain, qcow2's cluster
	CID        string   `json:"cid,omitempty"`        // eight hex digits
	ParentCID  string   `json:"parentCID,omitempty"`  // empty for a base
	Extents    []Extent `json:"extents,omitempty"`    // extents in the order of the disk; empty for qcow2 and raw
	Usage      *Usage   `json:"usage,omitempty"`      // nil if unknown
}

// An Extent is a piece of a layer, with or without a separate file.
type Extent struct {
	Off    int64  `json:"off"`            // offset on the layer's disk in bytes
	Len    int64  `json:"len"`            // length in bytes
	Format string `json:"format"`         // format of the file
	File   string `json:"file,omitempty"` // name of the file; empty if the extent reads as zeros
}

// A Usage counts the bytes of a layer or of the whole disk by kind.
type Usage struct {
	Data   int64 `json:"data"`             // bytes in a file
	Zero   int64 `json:"zero"`             // bytes that are known to be zeros
	Absent int64 `json:"absent,omitempty"` // bytes that the parent has
	Runs   int64 `json:"runs"`             // number of contiguous pieces of one kind
}

// Layers describes the layers of the disk, the youngest first. For a VMDK it reads all tables to count
// the usage.
func (f *File) Layers(ctx context.Context) ([]Layer, error) {
	switch f.Kind {
	case VMDK:
		return f.vmdkLayers(ctx)
	case QCOW2:
		return f.qcow2Layers(), nil
	}
	return []Layer{{Name: f.Path, Format: string(Raw), Size: f.Size()}}, nil
}

// vmdkLayers describes the layers of a VMDK with their usage.
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

// describeVMDK converts the description of a layer. files are the names by Part.File.
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

// usageOf counts the bytes of layer i, whose disk has size bytes.
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

// qcow2Layers describes the files of a qcow2 chain without their usage.
func (f *File) qcow2Layers() []Layer {
	var out []Layer
	for _, l := range f.qcow2.Layers() {
		out = append(out, Layer{Name: l.Path, Format: l.Format, Size: l.Size, Grain: l.ClusterSize})
	}
	return out
}

// usageWindow is the number of bytes whose extents one call requests.
const usageWindow = 1 << 30

// Usage counts the bytes of the whole disk. Nothing is absent.
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
