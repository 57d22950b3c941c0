package vsphere

import "errors"

// A chainView is the content of a disk through one link of its chain: the base, overlaid with the
// layers up to that link. It implements content.
type chainView struct {
	base   content  // original content of the disk
	size   int64    // capacity in bytes
	layers []*layer // layers from the base up
}

// errStale is the error of a read through a link that was merged.
var errStale = errors.New("the disk's link was merged while it was open")

// Size returns the capacity in bytes.
func (v *chainView) Size() int64 { return v.size }

// Close does nothing: the base belongs to the inventory.
func (v *chainView) Close() error { return nil }

// isStale reports whether a layer has been merged since the view was made.
func (v *chainView) isStale() bool {
	for _, y := range v.layers {
		if y.stale.Load() {
			return true
		}
	}
	return false
}

// ReadAt implements io.ReaderAt.
func (v *chainView) ReadAt(p []byte, off int64) (int, error) {
	n, eof := clipRead(p, off, v.size)
	if err := v.readBase(p[:n], off); err != nil {
		return 0, err
	}
	for at, end := off, off+int64(n); at < end; {
		next, stop, ok := v.nextLayered(at)
		if !ok || next >= end { // the rest is in the base
			break
		}
		at = max(at, next)
		for stop = min(stop, end); at < stop; {
			number := at / pageSize
			until := min(stop, (number+1)*pageSize)
			v.overlayPage(p[at-off:until-off], number, at-number*pageSize)
			at = until
		}
	}
	return n, eof
}

// readBase reads the base. Beyond its end, for a disk that has grown, it reads zeros.
func (v *chainView) readBase(p []byte, off int64) error {
	inside := max(0, min(int64(len(p)), v.base.Size()-off))
	clear(p[inside:]) // beyond the end of the base
	if inside == 0 {
		return nil
	}
	if n, err := v.base.ReadAt(p[:inside], off); int64(n) < inside {
		return err
	}
	return nil
}

// overlayPage copies the newest version of a page to dst, from the offset inside on. It leaves dst
// unchanged if no layer contains the page.
func (v *chainView) overlayPage(dst []byte, number, inside int64) {
	p, ok := v.findPage(number)
	if !ok {
		return
	}
	var whole [pageSize]byte
	p.fillBytes(whole[:], v.layers[0].noise, number)
	copy(dst, whole[inside:])
}

// findPage returns the newest version of a page; ok is false if only the base contains it.
func (v *chainView) findPage(number int64) (page, bool) {
	for i := len(v.layers) - 1; i >= 0; i-- { // newest first
		if p, ok := v.layers[i].findPage(number); ok {
			return p, true
		}
	}
	return page{}, false
}

// nextLayered returns the first granule that ends after off and in which a layer contains a page.
func (v *chainView) nextLayered(off int64) (start, end int64, ok bool) {
	for _, y := range v.layers {
		if s, e, there := y.nextGranule(off); there && (!ok || s < start) {
			start, end, ok = s, e, true
		}
	}
	return start, end, ok
}

// nextData implements content.
func (v *chainView) nextData(off int64) (start, end int64, err error) {
	start, end = v.size, v.size
	if off < v.base.Size() {
		if start, end, err = v.base.nextData(off); err != nil {
			return 0, 0, err
		}
		if start >= v.base.Size() {
			start, end = v.size, v.size
		}
	}
	if s, e, ok := v.nextLayered(off); ok && s < start {
		start, end = s, min(e, v.size)
	}
	return start, end, nil
}

// currentContent is the content of a disk at the time of each call. It implements content.
type currentContent struct{ d *vdisk }

// Size returns the current capacity in bytes.
func (v currentContent) Size() int64 { return v.d.activeView().Size() }

// Close does nothing: the base belongs to the inventory.
func (v currentContent) Close() error { return nil }

// ReadAt implements io.ReaderAt.
func (v currentContent) ReadAt(p []byte, off int64) (int, error) {
	return v.d.activeView().ReadAt(p, off)
}

// nextData implements content.
func (v currentContent) nextData(off int64) (start, end int64, err error) {
	return v.d.activeView().nextData(off)
}

// currentLinks returns the links of the disk from the base up. The slice must not be modified.
func (d *vdisk) currentLinks() []chainLink { return *d.links.Load() }

// lastLink returns the index of the link to which the guest writes.
func (d *vdisk) lastLink() int { return len(d.currentLinks()) - 1 }

// activeView returns the disk through its last link.
func (d *vdisk) activeView() *chainView { return d.viewThrough(d.currentLinks()) }

// viewThrough returns the disk through the last of links.
func (d *vdisk) viewThrough(links []chainLink) *chainView {
	v := &chainView{base: d.base, size: d.size.Load()}
	for _, link := range links {
		if link.layer != nil {
			v.layers = append(v.layers, link.layer)
		}
	}
	return v
}

// chainView returns the disk through this link.
func (k diskLink) chainView() *chainView { return k.disk.viewThrough(k.links) }
