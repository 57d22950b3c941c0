package nfstest

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/decamp/decamp/internal/lab/xdr"
)

// nfsstat3 values the server answers.
const (
	ok        = 0
	noEnt     = 2
	exist     = 17
	notDir    = 20
	noSpace   = 28
	notEmpty  = 66
	stale     = 70
	notSupp   = 10004
	pageSize  = 16 // entries of one READDIRPLUS: listings of a few files need several
	writeVerf = 8
)

var procNames = []string{
	"NULL", "GETATTR", "SETATTR", "LOOKUP", "ACCESS", "READLINK", "READ", "WRITE", "CREATE", "MKDIR", "SYMLINK", "MKNOD", "REMOVE",
	"RMDIR", "RENAME", "LINK", "READDIR", "READDIRPLUS", "FSSTAT", "FSINFO", "PATHCONF", "COMMIT",
}

// nfs carries out one call and appends its results. It returns true for no answer.
func (s *Server) nfs(proc uint32, op Op, d *xdr.Decoder, e *xdr.Encoder) bool {
	if int(proc) >= len(procNames) {
		e.Uint32(notSupp)
		return false
	}
	op.Proc = procNames[proc]
	f := (*file)(nil)
	if proc != 0 {
		f = s.lookup(d.Opaque(64))
	}
	c := &call{s: s, d: d, e: e, f: f, op: &op}
	c.peek(proc)
	s.ops = append(s.ops, op)
	var v Verdict
	if s.hook != nil {
		v = s.hook(op)
	}
	switch {
	case v.Drop:
		return true
	case v.Status != ok:
		c.fail(proc, v.Status)
	case proc == 0:
	case f == nil:
		c.fail(proc, stale)
	default:
		c.run(proc)
	}
	if v.Bend != nil {
		e.B = v.Bend(e.B)
	}
	return v.Mute
}

// call is one call being carried out.
type call struct {
	s    *Server
	d    *xdr.Decoder
	e    *xdr.Encoder
	f    *file
	op   *Op
	name string
	data []byte
}

// peek parses the arguments that an Op contains.
func (c *call) peek(proc uint32) {
	if c.f != nil {
		c.op.Name = c.f.name
	}
	switch proc {
	case 3, 8, 9, 12, 13, 14:
		c.name = c.d.String(255)
		c.op.Name = c.name
	case 6, 7:
		c.op.Offset, c.op.Length = int64(c.d.Uint64()), int(c.d.Uint32())
		if proc == 7 {
			c.op.Stable = c.d.Uint32()
			c.data = c.d.Opaque(1 << 21)
		}
	}
}

// fail answers with a status and the attributes that go with it.
func (c *call) fail(proc, status uint32) {
	c.e.Uint32(status)
	switch proc {
	case 1:
	case 2, 7, 8, 9, 12, 13, 21:
		wcc(c.e, c.f)
	case 14:
		wcc(c.e, nil)
		wcc(c.e, nil)
	default:
		postOp(c.e, c.f)
	}
}

func (c *call) run(proc uint32) {
	switch proc {
	case 1:
		c.e.Uint32(ok)
		c.f.attr(c.e)
	case 2:
		c.setAttr()
	case 3:
		c.lookup()
	case 6:
		c.read()
	case 7:
		c.write()
	case 8, 9:
		c.create(proc)
	case 12, 13:
		c.remove(proc)
	case 14:
		c.rename()
	case 17:
		c.readDir()
	case 18, 19:
		c.fs(proc)
	case 21:
		c.e.Uint32(ok)
		wcc(c.e, c.f)
		c.verf()
	default:
		c.fail(proc, notSupp)
	}
}

func (c *call) verf() { c.e.Uint64(c.s.boot) }

// sattr takes the settable attributes and returns the size if it is among them.
func (c *call) sattr() (size int64, set bool) {
	for range 3 { // mode, uid, gid
		if c.d.Bool() {
			c.d.Uint32()
		}
	}
	if set = c.d.Bool(); set {
		size = int64(c.d.Uint64())
	}
	for range 2 {
		if c.d.Uint32() == 2 {
			c.d.Uint64()
		}
	}
	return size, set
}

func (c *call) setAttr() {
	if size, set := c.sattr(); set {
		c.s.truncate(c.f, size)
	}
	c.f.time++
	c.e.Uint32(ok)
	wcc(c.e, c.f)
}

func (c *call) lookup() {
	f := c.s.files[c.f.dir[c.name]]
	if f == nil {
		c.fail(3, noEnt)
		return
	}
	c.e.Uint32(ok)
	c.e.Opaque(c.s.handle(f.id))
	postOp(c.e, f)
	postOp(c.e, c.f)
}

func (c *call) read() {
	p := make([]byte, c.op.Length)
	n := c.f.readAt(p, c.op.Offset)
	c.e.Uint32(ok)
	postOp(c.e, c.f)
	c.e.Uint32(uint32(n))
	c.e.Bool(c.op.Offset+int64(n) >= c.f.size)
	c.e.Opaque(p[:n])
}

func (c *call) write() {
	p := c.data[:min(len(c.data), int(c.s.maxWrite))]
	if !c.s.writeAt(c.f, p, c.op.Offset) {
		c.fail(7, noSpace)
		return
	}
	c.f.time++
	c.e.Uint32(ok)
	wcc(c.e, c.f)
	c.e.Uint32(uint32(len(p)))
	c.e.Uint32(c.op.Stable)
	c.verf()
}

func (c *call) create(proc uint32) {
	how, verf := uint32(0), []byte(nil)
	if proc == 8 {
		how = c.d.Uint32()
	}
	if how == 2 {
		verf = c.d.Fixed(writeVerf)
	} else {
		c.sattr()
	}
	f := c.s.files[c.f.dir[c.name]]
	if c.f.dir == nil {
		c.fail(proc, notDir)
		return
	}
	if f != nil && (proc == 9 || how == 1 || how == 2 && !sameVerf(f, verf)) {
		c.fail(proc, exist)
		return
	}
	if f == nil {
		f = c.s.add(c.f, c.name, 0o600)
		f.verf = verf
		if proc == 9 {
			f.dir = map[string]uint64{}
		}
	}
	c.e.Uint32(ok)
	c.e.Bool(true)
	c.e.Opaque(c.s.handle(f.id))
	postOp(c.e, f)
	wcc(c.e, c.f)
}

func (c *call) remove(proc uint32) {
	f := c.s.files[c.f.dir[c.name]]
	switch {
	case f == nil:
		c.fail(proc, noEnt)
		return
	case len(f.dir) > 0:
		c.fail(proc, notEmpty)
		return
	}
	c.s.drop(c.f, c.name)
	c.e.Uint32(ok)
	wcc(c.e, c.f)
}

func (s *Server) drop(dir *file, name string) {
	if f := s.files[dir.dir[name]]; f != nil {
		s.used -= int64(len(f.blocks)) * blockSize
		delete(s.files, f.id)
	}
	delete(dir.dir, name)
}

func (c *call) rename() {
	to := c.s.lookup(c.d.Opaque(64))
	name := c.d.String(255)
	f := c.s.files[c.f.dir[c.name]]
	if f == nil || to == nil {
		c.fail(14, noEnt)
		return
	}
	if to != c.f || name != c.name {
		c.s.drop(to, name)
		delete(c.f.dir, c.name)
		to.dir[name], f.name = f.id, name
	}
	c.e.Uint32(ok)
	wcc(c.e, c.f)
	wcc(c.e, to)
}

func (c *call) readDir() {
	from := c.d.Uint64()
	names := slices.Sorted(maps.Keys(c.f.dir))
	c.e.Uint32(ok)
	postOp(c.e, c.f)
	c.e.Uint64(0) // cookie verifier
	end := min(uint64(len(names)), from+pageSize)
	for i := from; i < end; i++ {
		f := c.s.files[c.f.dir[names[i]]]
		c.e.Bool(true)
		c.e.Uint64(f.id)
		c.e.String(names[i])
		c.e.Uint64(i + 1)
		postOp(c.e, f)
		c.e.Bool(true)
		c.e.Opaque(c.s.handle(f.id))
	}
	c.e.Bool(false)
	c.e.Bool(end == uint64(len(names)))
}

func (c *call) fs(proc uint32) {
	c.e.Uint32(ok)
	postOp(c.e, c.f)
	if proc == 18 {
		total := uint64(1) << 40
		if c.s.room > 0 {
			total = uint64(c.s.room)
		}
		for _, v := range []uint64{total, total - uint64(c.s.used), total - uint64(c.s.used), 1 << 20, 1 << 19, 1 << 19} {
			c.e.Uint64(v)
		}
		c.e.Uint32(0)
		return
	}
	for _, v := range []uint32{1 << 20, 1 << 16, 512, c.s.maxWrite, c.s.maxWrite, 512, 1 << 13} {
		c.e.Uint32(v)
	}
	c.e.Fixed(binary.BigEndian.AppendUint64(nil, 64<<40)) // maxfilesize
	c.e.Uint64(1)                                         // time_delta
	c.e.Uint32(0x1b)                                      // properties
}
