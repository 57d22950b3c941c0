package vsphere

import "errors"

// chainView is a disk as one link of its chain shows it: the base's content, overlaid with the writes
// to the links up to this one. It implements content.
type chainView struct {
	base   content
	size   int64
	layers []*layer // layers from the base up
}

// errStale is the error of a read through a link whose file has changed.
var errStale = errors.New("the disk's link was merged while it was open")

func (v *chainView) Size() int64  { return v.size }
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

func (v *chainView) ReadAt(p []byte, off int64) (int, error) {
	n, eof := clipRead(p, off, v.size)
	if err := v.readBase(p[:n], off); err != nil {
		return 0, err
	}
	for at, end := off, off+int64(n); at < end; {
		next, stop, ok := v.nextLayered(at)
		if !ok || next >= end {
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

// readBase reads the base, which may be shorter than the disk has become.
func (v *chainView) readBase(p []byte, off int64) error {
	inside := max(0, min(int64(len(p)), v.base.Size()-off))
	clear(p[inside:])
	if inside == 0 {
		return nil
	}
	if n, err := v.base.ReadAt(p[:inside], off); int64(n) < inside {
		return err
	}
	return nil
}

// overlayPage puts the topmost version of a page over dst, which begins inside it.
func (v *chainView) overlayPage(dst []byte, number, inside int64) {
	p, ok := v.findPage(number)
	if !ok {
		return
	}
	var whole [pageSize]byte
	p.fillBytes(whole[:], v.layers[0].noise, number)
	copy(dst, whole[inside:])
}

// findPage returns the topmost version of a page; without one the base has it.
func (v *chainView) findPage(number int64) (page, bool) {
	for i := len(v.layers) - 1; i >= 0; i-- {
		if p, ok := v.layers[i].findPage(number); ok {
			return p, true
		}
	}
	return page{}, false
}

// nextLayered returns the first granule that any layer has a page in.
func (v *chainView) nextLayered(off int64) (start, end int64, ok bool) {
	for _, y := range v.layers {
		if s, e, there := y.nextGranule(off); there && (!ok || s < start) {
			start, end, ok = s, e, true
		}
	}
	return start, end, ok
}

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

// live is a disk as its guest sees it now. It implements content.
type live struct{ d *vdisk }

func (v live) Size() int64                             { return v.d.activeView().Size() }
func (v live) Close() error                            { return nil }
func (v live) ReadAt(p []byte, off int64) (int, error) { return v.d.activeView().ReadAt(p, off) }
func (v live) nextData(off int64) (start, end int64, err error) {
	return v.d.activeView().nextData(off)
}

// currentLinks returns the links of the disk as they are now.
func (d *vdisk) currentLinks() []chainLink { return *d.links.Load() }

// lastLink is the index of the link a guest writes to.
func (d *vdisk) lastLink() int { return len(d.currentLinks()) - 1 }

// activeView is the disk through its last link.
func (d *vdisk) activeView() *chainView { return d.viewThrough(d.currentLinks()) }

// viewThrough is the disk read through the last of links.
func (d *vdisk) viewThrough(links []chainLink) *chainView {
	v := &chainView{base: d.base, size: d.size.Load()}
	for _, link := range links {
		if link.layer != nil {
			v.layers = append(v.layers, link.layer)
		}
	}
	return v
}

// chainView is the disk through this link.
func (k diskLink) chainView() *chainView { return k.disk.viewThrough(k.links) }
