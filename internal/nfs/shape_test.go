package nfs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// A layout decodes the results of a call, or a part of them, as RFC 1813 defines them. It is independent of the
// server.
type layout func(d *xdr.Decoder)

func wordsLayout(n int) layout {
	return func(d *xdr.Decoder) {
		for range n {
			d.Uint32()
		}
	}
}

func sequenceOf(parts ...layout) layout {
	return func(d *xdr.Decoder) {
		for _, p := range parts {
			p(d)
		}
	}
}

// optional is the layout of an optional part.
func optional(part layout) layout {
	return func(d *xdr.Decoder) {
		if d.Bool() {
			part(d)
		}
	}
}

// linkedList is the layout of a linked list.
func linkedList(entry layout) layout {
	return func(d *xdr.Decoder) {
		for d.Bool() {
			entry(d)
		}
	}
}

func opaqueLayout(least, most int) layout {
	return func(d *xdr.Decoder) {
		if n := len(d.Opaque(most)); n < least {
			d.Fail("%d bytes, want at least %d", n, least)
		}
	}
}

func boolLayout(d *xdr.Decoder) { d.Bool() }

// enumLayout is an enumeration from 0 on.
func enumLayout(n uint32) layout {
	return func(d *xdr.Decoder) {
		if v := d.Uint32(); v >= n {
			d.Fail("%d, want less than %d", v, n)
		}
	}
}

// attrLayout is the layout of fattr3: type and 4 words, then size, used, rdev, fsid and fileid, then three times.
func attrLayout(d *xdr.Decoder) {
	const types, second = 7, 1e9
	if kind := d.Uint32(); kind < 1 || kind > types {
		d.Fail("file of type %d", kind)
	}
	wordsLayout(4 + 5*2)(d)
	for range 3 {
		d.Uint32()
		if nsec := d.Uint32(); nsec >= second {
			d.Fail("%d nanoseconds", nsec)
		}
	}
}

// readLayout is the layout of count, eof and data of READ.
func readLayout(d *xdr.Decoder) {
	count := d.Uint32()
	d.Bool()
	if n := len(d.Opaque(1 << 20)); n != int(count) {
		d.Fail("count %d of %d bytes", count, n)
	}
}

// resultLayouts returns the layouts of the results of each procedure: after NFS3_OK, and after an error.
func resultLayouts() map[uint32][2]layout {
	post := optional(attrLayout)
	wcc := sequenceOf(optional(wordsLayout(6)), post)
	handle, verf := opaqueLayout(1, 64), wordsLayout(2)
	name := opaqueLayout(1, 255)
	made := [2]layout{sequenceOf(optional(handle), post, wcc), wcc}
	entry := sequenceOf(wordsLayout(2), name, wordsLayout(2))
	return map[uint32][2]layout{
		pGetattr:     {attrLayout, sequenceOf()},
		pSetattr:     {wcc, wcc},
		pLookup:      {sequenceOf(handle, post, post), post},
		pAccess:      {sequenceOf(post, wordsLayout(1)), post},
		pReadlink:    {sequenceOf(post, opaqueLayout(1, 4096)), post},
		pRead:        {sequenceOf(post, readLayout), post},
		pWrite:       {sequenceOf(wcc, wordsLayout(1), enumLayout(3), verf), wcc},
		pCreate:      made,
		pMkdir:       made,
		pSymlink:     made,
		pMknod:       made,
		pRemove:      {wcc, wcc},
		pRmdir:       {wcc, wcc},
		pRename:      {sequenceOf(wcc, wcc), sequenceOf(wcc, wcc)},
		pLink:        {sequenceOf(post, wcc), sequenceOf(post, wcc)},
		pReaddir:     {sequenceOf(post, verf, linkedList(entry), boolLayout), post},
		pReaddirplus: {sequenceOf(post, verf, linkedList(sequenceOf(entry, post, optional(handle))), boolLayout), post},
		pFsstat:      {sequenceOf(post, wordsLayout(13)), post},
		pFsinfo:      {sequenceOf(post, wordsLayout(7), wordsLayout(2), wordsLayout(2), wordsLayout(1)), post},
		pPathconf:    {sequenceOf(post, wordsLayout(2), boolLayout, boolLayout, boolLayout, boolLayout), post},
		pCommit:      {sequenceOf(wcc, verf), wcc},
	}
}

// knownStatus contains the values of nfsstat3.
var knownStatus = map[uint32]bool{
	0: true, 1: true, 2: true, 5: true, 6: true, 13: true, 17: true, 18: true, 19: true, 20: true, 21: true, 22: true, 27: true,
	28: true, 30: true, 31: true, 63: true, 66: true, 69: true, 70: true, 71: true, 10001: true, 10002: true, 10003: true,
	10004: true, 10005: true, 10006: true, 10007: true, 10008: true,
}

var errMalformedReply = errors.New("malformed reply")

// acceptedResults removes the header of an accepted reply. It returns an error for SYSTEM_ERR, because that means
// that the server panicked.
func acceptedResults(reply []byte) (results []byte, garbage bool, err error) {
	const header, garbageArgs = 24, 4
	if len(reply) < header || len(reply)%4 != 0 {
		return nil, false, fmt.Errorf("%w: %d bytes", errMalformedReply, len(reply))
	}
	if head := reply[4:20]; !bytes.Equal(head, []byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) {
		return nil, false, fmt.Errorf("%w: % x", errMalformedReply, head)
	}
	switch stat := binary.BigEndian.Uint32(reply[20:]); stat {
	case 0:
		return reply[header:], false, nil
	case garbageArgs:
		return reply[header:], true, checkNoRest(bytes.NewReader(reply[header:]))
	default:
		return nil, false, fmt.Errorf("%w: accept_stat %d", errMalformedReply, stat)
	}
}

// checkReply returns the results of a reply, or an error if they do not have the layout of the procedure. The
// results are nil if the server rejected the arguments as garbage.
func checkReply(procedure uint32, reply []byte) ([]byte, error) {
	results, garbage, err := acceptedResults(reply)
	if err != nil || garbage {
		return nil, err
	}
	r := bytes.NewReader(results)
	if procedure == 0 {
		return results, checkNoRest(r)
	}
	d := xdr.NewDecoder(r)
	status := d.Uint32()
	if !knownStatus[status] {
		return nil, fmt.Errorf("%w: nfsstat3 %d", errMalformedReply, status)
	}
	which := 0
	if status != 0 {
		which = 1
	}
	resultLayouts()[procedure][which](d)
	if d.Err() != nil {
		return nil, fmt.Errorf("results % x: %w", results, d.Err())
	}
	return results, checkNoRest(r)
}

func checkNoRest(r *bytes.Reader) error {
	if r.Len() > 0 {
		return fmt.Errorf("%w: %d bytes too long", errMalformedReply, r.Len())
	}
	return nil
}
