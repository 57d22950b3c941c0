package rpc

import (
	"cmp"
	"context"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// Part is the maximum number of data bytes in one frame.
const Part = 1 << 20

// sparseStream (VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM) makes both directions send holes instead of
// zeros.
const sparseStream = 1

// Upload writes src to a new volume: its data, and holes for ranges of zeros. progress, which may be
// nil, receives
// the number of bytes after each frame, including holes.
//
// A file volume keeps the holes. To a block device, libvirt writes zeros for them; versions before
// SparseDevices
// fail.
func (c *Client) Upload(ctx context.Context, v Volume, src disk.Source, told func(n int64)) error {
	u := upload{Client: c, src: src, progress: told, buf: make([]byte, Part)}
	if err := u.openStream(ctx, procVolumeUpload, v, disk.Range{Len: src.Size()}); err != nil {
		return err
	}
	defer c.limitCall(ctx)()
	if err := u.sendContent(ctx); err != nil {
		c.abortStream(ctx, procVolumeUpload)
		return err
	}
	if err := c.send(ctx, frame{proc: procVolumeUpload, kind: stream, status: ok}); err != nil {
		return err
	}
	_, err := c.nextFrame(ctx)
	return err
}

// openStream starts a stream of a range of a volume. It waits for the answer up to changeGrace after
// ctx ends: if the
// connection ends before the answer, libvirt 9.0 keeps the volume open until its daemon exits, and LVM
// does not
// remove open volumes.
func (c *Client) openStream(ctx context.Context, proc uint32, v Volume, part disk.Range) error {
	_, err := c.callChange(ctx, proc, args{}.volume(v).uint64(uint64(part.Off)).uint64(uint64(part.Len)).uint32(sparseStream))
	return err
}

// abortStream aborts a stream. It does not wait, because libvirt sends no answer if it has ended the
// stream itself.
func (c *Client) abortStream(ctx context.Context, proc uint32) {
	_ = c.send(ctx, frame{proc: proc, kind: stream, status: failed}) // the first error is returned
}

// upload is a running Upload.
type upload struct {
	*Client
	src      disk.Source // the disk to send
	progress func(int64) // receives the number of bytes sent; may be nil
	buf      []byte      // buffer of Part bytes
}

// extentWindow is the length of the range whose extents are queried at once, in bytes.
const extentWindow = 1 << 30

// sendContent sends all extents of the disk.
func (u *upload) sendContent(ctx context.Context) error {
	for off := int64(0); off < u.src.Size(); off += extentWindow {
		extents, err := u.src.Extents(ctx, disk.Range{Off: off, Len: min(extentWindow, u.src.Size()-off)})
		if err != nil {
			return err
		}
		for _, e := range extents {
			if err := u.sendExtent(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendExtent sends data in frames of at most Part bytes, or one frame for a hole.
func (u *upload) sendExtent(ctx context.Context, e disk.Extent) error {
	if e.Kind == disk.Zero {
		defer u.reportProgress(e.Len)
		return u.sendPacket(ctx, frame{kind: hole, payload: args{}.uint64(uint64(e.Len)).uint32(0)})
	}
	for off := e.Off; off < e.End(); off += Part {
		p := u.buf[:min(Part, e.End()-off)]
		if err := u.src.ReadAt(ctx, p, off); err != nil {
			return err
		}
		if err := u.sendPacket(ctx, frame{kind: stream, payload: p}); err != nil {
			return err
		}
		u.reportProgress(int64(len(p)))
	}
	return nil
}

// reportProgress reports n more bytes.
func (u *upload) reportProgress(n int64) {
	if u.progress != nil {
		u.progress(n)
	}
}

// errEndedEarly is the error if libvirt ends an upload without a reason.
var errEndedEarly error = fault.New(fault.Transient, "libvirt ended the upload early").WithHint("run the same command again")

// sendPacket sends one frame of the stream. It fails if libvirt has already reported an error.
func (u *upload) sendPacket(ctx context.Context, f frame) error {
	select {
	case early, open := <-u.frames:
		if !open {
			return u.connectionError(ctx, u.readErr)
		}
		if early.belongsTo(u.serial) {
			return cmp.Or(early.toError(), errEndedEarly)
		}
	default:
	}
	u.extendDeadline(ctx)
	f.proc, f.status = procVolumeUpload, continues
	return u.send(ctx, f)
}

// Reader receives the content of a volume in ascending order without gaps.
type Reader interface {
	Data(off int64, p []byte) error // Data receives the bytes at offset off. p may be reused after it returns.
	Zeros(r disk.Range) error       // Zeros receives a hole.
}

// shortTries is the number of consecutive downloads without data after which Download fails. libvirt
// 9.0 ends about
// one of forty downloads at once, as if the volume were empty.
const shortTries = 5

// Download reads size bytes of a volume. If a stream ends early, it opens another for the rest.
func (c *Client) Download(ctx context.Context, v Volume, size int64, to Reader) error {
	tries := 0
	for off := int64(0); off < size; {
		n, err := c.downloadPart(ctx, v, disk.Range{Off: off, Len: size - off}, to)
		if err != nil {
			return err
		}
		if tries++; n > 0 {
			tries = 0
		}
		if tries == shortTries {
			return fault.New(fault.Corrupt, "volume %s ends at byte %d of %d", v.Name, off, size).WithHint("run the same command again")
		}
		off += n
	}
	return nil
}

// downloadPart reads a range of a volume and returns the number of bytes received.
func (c *Client) downloadPart(ctx context.Context, v Volume, part disk.Range, to Reader) (int64, error) {
	if err := c.openStream(ctx, procVolumeDownload, v, part); err != nil {
		return 0, err
	}
	defer c.limitCall(ctx)()
	off, err := c.receiveStream(ctx, part, to)
	if err != nil {
		c.abortStream(ctx, procVolumeDownload)
		return 0, err
	}
	if err := c.send(ctx, frame{proc: procVolumeDownload, kind: stream, status: ok}); err != nil {
		return 0, err
	}
	_, err = c.nextFrame(ctx)
	return off - part.Off, err
}

// receiveStream receives frames until an empty one, and returns the offset after the last byte.
func (c *Client) receiveStream(ctx context.Context, part disk.Range, to Reader) (off int64, err error) {
	for off = part.Off; ; {
		c.extendDeadline(ctx)
		f, err := c.nextFrame(ctx)
		if err != nil {
			return off, err
		}
		n, err := f.contentLen()
		if err != nil || n == 0 && f.kind == stream {
			return off, err
		}
		if n < 0 || n > part.End()-off {
			return off, fault.New(fault.Corrupt, "libvirt sent %d bytes at byte %d, more than the volume of %d bytes contains", n, off, part.End()).WithHint("run the same command again")
		}
		if f.kind == hole {
			err = to.Zeros(disk.Range{Off: off, Len: n})
		} else {
			err = to.Data(off, f.payload)
		}
		if err != nil {
			return off, err
		}
		off += n
	}
}

// contentLen returns the number of volume bytes in a stream frame: its payload, or the length of its
// hole.
func (f frame) contentLen() (int64, error) {
	if f.kind != hole {
		return int64(len(f.payload)), nil
	}
	r := &result{rest: f.payload}
	return int64(r.uint64()), r.err
}
