package nfstest

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/decamp/decamp/internal/lab/xdr"
)

// nfsstat3 values the server answers.
const (
	ok        = 0     // success
	noEnt     = 2     // no such file
	exist     = 17    // file exists
	notDir    = 20    // not a directory
	noSpace   = 28    // no space left
	notEmpty  = 66    // directory not empty
	stale     = 70    // handle of a removed file
	notSupp   = 10004 // procedure not supported
	pageSize  = 16    // entries of one READDIRPLUS, so few that short listings need several calls
	writeVerf = 8     // size of a verifier in bytes
)

// procNames are the names of the procedures by number (RFC 1813 section 3).
var procNames = []string{
	"NULL", "GETATTR", "SETATTR", "LOOKUP", "ACCESS", "READLINK", "READ", "WRITE", "CREATE", "MKDIR", "SYMLINK", "MKNOD", "REMOVE",
	"RMDIR", "RENAME", "LINK", "READDIR", "READDIRPLUS", "FSSTAT", "FSINFO", "PATHCONF", "COMMIT",
}

// serveNFS executes one call and appends its results. It returns true if the call must not be answered.
// mu must be held.
func (s *Server) serveNFS(proc uint32, op Op, d *xdr.Decoder, e *xdr.Encoder) bool {
	if int(proc) >= len(procNames) {
		e.Uint32(notSupp)
		return false
	}
	op.Proc = procNames[proc]
	f := (*file)(nil)
	if proc != 0 {
		f = s.fileByHandle(d.Opaque(64))
	}
	c := &call{s: s, d: d, e: e, f: f, op: &op}
	c.parseOp(proc)
	s.ops = append(s.ops, op)
	var v Verdict
	if s.hook != nil {
		v = s.hook(op)
	}
	switch {
	case v.Drop:
		return true
	case v.Status != ok:
		c.replyError(proc, v.Status)
	case proc == 0:
	case f == nil:
		c.replyError(proc, stale)
	default:
		c.runProcedure(proc)
	}
	if v.AlterReply != nil {
		e.B = v.AlterReply(e.B) // includes the status
	}
	return v.NoReply
}

// A call is an NFS call in execution.
type call struct {
	s    *Server      // server, whose mu is held
	d    *xdr.Decoder // remaining arguments
	e    *xdr.Encoder // results
	f    *file        // file of the first handle; nil if it does not exist
	op   *Op          // description for the hook
	name string       // name in the arguments; empty if the procedure has none
	data []byte       // data of a WRITE
}

// parseOp decodes the arguments that an Op contains.
func (c *call) parseOp(proc uint32) {
	if c.f != nil {
		c.op.Name = c.f.name
	}
	switch proc {
	case 3, 8, 9, 12, 13, 14: // LOOKUP, CREATE, MKDIR, REMOVE, RMDIR, RENAME
		c.name = c.d.String(255)
		c.op.Name = c.name
	case 6, 7: // READ, WRITE
		c.op.Offset, c.op.Length = int64(c.d.Uint64()), int(c.d.Uint32())
		if proc == 7 { // WRITE: stable_how and data follow
			c.op.Stable = c.d.Uint32()
			c.data = c.d.Opaque(1 << 21)
		}
	}
}

// replyError encodes a status and the attributes that follow it in an unsuccessful reply.
func (c *call) replyError(proc, status uint32) {
	c.e.Uint32(status)
	switch proc {
	case 1: // GETATTR: no attributes
	case 2, 7, 8, 9, 12, 13, 21: // wcc_data of the file or the directory
		appendWcc(c.e, c.f)
	case 14: // RENAME: wcc_data of both directories
		appendWcc(c.e, nil)
		appendWcc(c.e, nil)
	default:
		appendPostOp(c.e, c.f)
	}
}

// runProcedure executes a procedure on an existing file.
func (c *call) runProcedure(proc uint32) {
	switch proc {
	case 1: // GETATTR
		c.e.Uint32(ok)
		c.f.appendAttr(c.e)
	case 2: // SETATTR
		c.setAttr()
	case 3: // LOOKUP
		c.lookupName()
	case 6: // READ
		c.readFile()
	case 7: // WRITE
		c.writeFile()
	case 8, 9: // CREATE, MKDIR
		c.createFile(proc)
	case 12, 13: // REMOVE, RMDIR
		c.removeName(proc)
	case 14: // RENAME
		c.renameFile()
	case 17: // READDIRPLUS
		c.readDir()
	case 18, 19: // FSSTAT, FSINFO
		c.fileSystemInfo(proc)
	case 21: // COMMIT: the data is stored already
		c.e.Uint32(ok)
		appendWcc(c.e, c.f)
		c.appendVerifier()
	default:
		c.replyError(proc, notSupp)
	}
}

// appendVerifier encodes the write verifier.
func (c *call) appendVerifier() { c.e.Uint64(c.s.boot) }

// readSattr decodes a sattr3 and returns the size, if it is set. Other attributes are ignored.
func (c *call) readSattr() (size int64, set bool) {
	for range 3 { // mode, uid, gid
		if c.d.Bool() {
			c.d.Uint32()
		}
	}
	if set = c.d.Bool(); set {
		size = int64(c.d.Uint64())
	}
	for range 2 { // atime, mtime
		if c.d.Uint32() == 2 { // SET_TO_CLIENT_TIME: a time follows
			c.d.Uint64()
		}
	}
	return size, set
}

// setAttr executes SETATTR. Only the size has an effect.
func (c *call) setAttr() {
	if size, set := c.readSattr(); set {
		c.s.truncateFile(c.f, size)
	}
	c.f.time++
	c.e.Uint32(ok)
	appendWcc(c.e, c.f)
}

// lookupName executes LOOKUP.
func (c *call) lookupName() {
	f := c.s.files[c.f.dir[c.name]]
	if f == nil {
		c.replyError(3, noEnt)
		return
	}
	c.e.Uint32(ok)
	c.e.Opaque(c.s.handleOf(f.id))
	appendPostOp(c.e, f)
	appendPostOp(c.e, c.f)
}

// readFile executes READ.
func (c *call) readFile() {
	p := make([]byte, c.op.Length)
	n := c.f.readAt(p, c.op.Offset)
	c.e.Uint32(ok)
	appendPostOp(c.e, c.f)
	c.e.Uint32(uint32(n))
	c.e.Bool(c.op.Offset+int64(n) >= c.f.size) // eof
	c.e.Opaque(p[:n])
}

// writeFile executes WRITE, of at most maxWrite bytes. The data is stored at once; the reply repeats
// the requested stability.
func (c *call) writeFile() {
	p := c.data[:min(len(c.data), int(c.s.maxWrite))]
	if !c.s.writeAt(c.f, p, c.op.Offset) {
		c.replyError(7, noSpace)
		return
	}
	c.f.time++
	c.e.Uint32(ok)
	appendWcc(c.e, c.f)
	c.e.Uint32(uint32(len(p)))
	c.e.Uint32(c.op.Stable) // committed, as requested
	c.appendVerifier()
}

// createFile executes CREATE and MKDIR. A repeated exclusive CREATE with the same verifier succeeds.
func (c *call) createFile(proc uint32) {
	how, verf := uint32(0), []byte(nil)
	if proc == 8 { // CREATE: createmode3 follows the name
		how = c.d.Uint32()
	}
	if how == 2 { // EXCLUSIVE: a verifier in place of attributes
		verf = c.d.Fixed(writeVerf)
	} else {
		c.readSattr()
	}
	f := c.s.files[c.f.dir[c.name]]
	if c.f.dir == nil {
		c.replyError(proc, notDir)
		return
	}
	if f != nil && (proc == 9 || how == 1 || how == 2 && !sameVerf(f, verf)) {
		c.replyError(proc, exist)
		return
	}
	if f == nil {
		f = c.s.addFile(c.f, c.name, 0o600)
		f.verf = verf
		if proc == 9 { // MKDIR
			f.dir = map[string]uint64{}
		}
	}
	c.e.Uint32(ok)
	c.e.Bool(true)
	c.e.Opaque(c.s.handleOf(f.id))
	appendPostOp(c.e, f)
	appendWcc(c.e, c.f)
}

// removeName executes REMOVE and RMDIR.
func (c *call) removeName(proc uint32) {
	f := c.s.files[c.f.dir[c.name]]
	switch {
	case f == nil:
		c.replyError(proc, noEnt)
		return
	case len(f.dir) > 0:
		c.replyError(proc, notEmpty)
		return
	}
	c.s.dropName(c.f, c.name)
	c.e.Uint32(ok)
	appendWcc(c.e, c.f)
}

// dropName removes an entry of a directory and its file. A missing entry is ignored.
func (s *Server) dropName(dir *file, name string) {
	if f := s.files[dir.dir[name]]; f != nil {
		s.used -= int64(len(f.blocks)) * blockSize
		delete(s.files, f.id)
	}
	delete(dir.dir, name)
}

// renameFile executes RENAME, which replaces an existing file.
func (c *call) renameFile() {
	to := c.s.fileByHandle(c.d.Opaque(64))
	name := c.d.String(255)
	f := c.s.files[c.f.dir[c.name]]
	if f == nil || to == nil {
		c.replyError(14, noEnt)
		return
	}
	if to != c.f || name != c.name { // otherwise the file keeps its name
		c.s.dropName(to, name)
		delete(c.f.dir, c.name)
		to.dir[name], f.name = f.id, name
	}
	c.e.Uint32(ok)
	appendWcc(c.e, c.f)
	appendWcc(c.e, to)
}

// readDir executes READDIRPLUS. The cookie of an entry is its index plus one.
func (c *call) readDir() {
	from := c.d.Uint64()
	names := slices.Sorted(maps.Keys(c.f.dir))
	c.e.Uint32(ok)
	appendPostOp(c.e, c.f)
	c.e.Uint64(0) // cookie verifier
	end := min(uint64(len(names)), from+pageSize)
	for i := from; i < end; i++ {
		f := c.s.files[c.f.dir[names[i]]]
		c.e.Bool(true)
		c.e.Uint64(f.id) // fileid
		c.e.String(names[i])
		c.e.Uint64(i + 1) // cookie
		appendPostOp(c.e, f)
		c.e.Bool(true)
		c.e.Opaque(c.s.handleOf(f.id))
	}
	c.e.Bool(false)                     // end of the list
	c.e.Bool(end == uint64(len(names))) // eof
}

// fileSystemInfo executes FSSTAT and FSINFO.
func (c *call) fileSystemInfo(proc uint32) {
	c.e.Uint32(ok)
	appendPostOp(c.e, c.f)
	if proc == 18 { // FSSTAT; otherwise FSINFO
		total := uint64(1) << 40 // default of SetRoom
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
