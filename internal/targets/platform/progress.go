package platform

// Progress adds up what is delivered of all images of a VM. An image that is sent again stands still until it
// is where it was. It is for one goroutine.
type Progress struct {
	tell              func(done, total int64)
	done, told, total int64
}

// NewProgress tells whoever asked of d.
func NewProgress(d Delivery) *Progress {
	p := &Progress{tell: d.Progress}
	if p.tell == nil {
		p.tell = func(done, total int64) {}
	}
	for _, img := range d.Images {
		p.total += img.Size
	}
	return p
}

// Sent says that so many bytes of the present image are there.
func (p *Progress) Sent(n int64) {
	if at := p.done + n; at > p.told {
		p.told = at
		p.tell(at, p.total)
	}
}

// Finish says that an image of so many bytes is there.
func (p *Progress) Finish(size int64) {
	p.Sent(size)
	p.done += size
}
