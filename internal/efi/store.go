package efi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/decamp/decamp/internal/fault"
)

// A Store is the file in which QEMU's firmware (OVMF, of edk2) stores its variables. It
// begins as a copy of the template that is installed with the firmware: each build has
// its own size and layout.
//
// The layout is edk2's, MdePkg/Include/Pi/PiFirmwareVolume.h and
// MdeModulePkg/Include/Guid/VariableFormat.h: a firmware volume with a variable store,
// in which variables follow each other, aligned to four bytes, and then erased flash,
// which is 0xff. As in flash, a changed variable is marked as deleted by clearing one
// bit of its state, and written again after the last one.
type Store struct {
	data []byte   // contents of the file, owned by the Store
	end  int      // end of the space for variables
	free int      // position of the next variable
	live []stored // current variables, in the order of the file
}

// stored is a current variable.
type stored struct {
	name   string // key of the variable, with vendor
	vendor GUID   // namespace of the name
	at     int    // position of its header
}

var (
	volumeOfVariables = mustGUID("fff12b8d-7696-4c8b-a985-2747075b4f50") // GUID of a firmware volume with variables
	storeOfVariables  = mustGUID("aaf32c78-947b-439a-a180-2e144ec37792") // store with space for authentication data
)

const (
	// MaxStore limits the size of a store, in bytes. Those of OVMF have 128 or 528 KiB.
	MaxStore = 16 << 20

	volumeHeader   = 72 // size with one line of the block map
	variableStore  = 28 // size of the store's header
	variableHeader = 60 // size of a variable's header

	formatted = 0x5a // format byte of a valid store
	healthy   = 0xfe // state byte of a valid store

	startMark  = 0x55aa // first two bytes of a variable
	stateAdded = 0x3f   // state of a current variable; cleared bits mean that header and data were written
	notDeleted = 0xfd   // mask that marks a variable as deleted
	erased     = 0xff   // value of erased flash
)

// OpenStore parses a store. It keeps data, and Set changes it. An invalid store is
// fault.Corrupt.
func OpenStore(data []byte) (*Store, error) {
	start, end, err := roomOf(data)
	if err != nil {
		return nil, fault.New(fault.Corrupt, "the variables of the firmware: %w", err).
			WithHint("reinstall the firmware's package: apt install --reinstall ovmf   # dnf reinstall edk2-ovmf")
	}
	s := &Store{data: data, end: end, free: start}
	if err := s.scanVariables(); err != nil {
		return nil, fault.New(fault.Corrupt, "the variables of the firmware: %w", err)
	}
	return s, nil
}

// roomOf returns the space for variables. It verifies the headers of the volume and of
// the store.
func roomOf(data []byte) (start, end int, err error) {
	if len(data) < volumeHeader+variableStore || len(data) > MaxStore || string(data[40:44]) != "_FVH" || GUID(data[16:32]) != volumeOfVariables {
		return 0, 0, errors.New("it is no firmware volume with variables")
	}
	header, length := int(binary.LittleEndian.Uint16(data[48:])), binary.LittleEndian.Uint64(data[32:])
	if length > uint64(len(data)) || header < volumeHeader || header+variableStore > int(length) || header%2 != 0 {
		return 0, 0, fmt.Errorf("a volume of %d bytes with a header of %d, in %d", length, header, len(data))
	}
	// The words of the header, including the checksum, add up to 0.
	var sum uint16
	for at := 0; at < header; at += 2 {
		sum += binary.LittleEndian.Uint16(data[at:])
	}
	if sum != 0 {
		return 0, 0, errors.New("the checksum of the volume's header is wrong")
	}
	h := data[header:]
	if GUID(h[:16]) != storeOfVariables || h[20] != formatted || h[21] != healthy {
		return 0, 0, errors.New("the store in the volume is of a kind that is not known")
	}
	size := binary.LittleEndian.Uint32(h[16:])
	if size < variableStore || uint64(size) > length-uint64(header) {
		return 0, 0, fmt.Errorf("a store of %d bytes, in a volume of %d", size, length)
	}
	return header + variableStore, header + int(size), nil
}

// scanVariables finds all variables, and verifies that the space after the last one is
// erased.
func (s *Store) scanVariables() error {
	for s.free+variableHeader <= s.end && binary.LittleEndian.Uint16(s.data[s.free:]) == startMark {
		h := s.data[s.free:]
		name, data := uint64(binary.LittleEndian.Uint32(h[36:])), uint64(binary.LittleEndian.Uint32(h[40:]))
		next := uint64(s.free) + variableHeader + name + data
		if next > uint64(s.end) {
			return fmt.Errorf("the variable at %d is of %d bytes, more than there are", s.free, name+data)
		}
		// Other states are deleted or incomplete variables.
		if h[2] == stateAdded {
			text, _, err := cutText(h[variableHeader:][:name])
			if err != nil {
				return fmt.Errorf("the variable at %d: %w", s.free, err)
			}
			s.live = append(s.live, stored{text, GUID(h[44:60]), s.free})
		}
		s.free = min(align4(int(next)), s.end)
	}
	if i := slices.IndexFunc(s.data[s.free:s.end], func(b byte) bool { return b != erased }); i >= 0 {
		return fmt.Errorf("there is something at %d, behind the last variable", s.free+i)
	}
	return nil
}

// align4 rounds up to a multiple of four.
func align4(n int) int { return (n + 3) &^ 3 }

// Bytes returns the contents of the file. The caller must not change them.
func (s *Store) Bytes() []byte { return s.data }

// Variables returns copies of the current variables.
func (s *Store) Variables() []Variable {
	var vars []Variable
	for _, v := range s.live {
		h := s.data[v.at:]
		name, size := int(binary.LittleEndian.Uint32(h[36:])), int(binary.LittleEndian.Uint32(h[40:]))
		vars = append(vars, Variable{Name: v.name, Vendor: v.vendor, Attributes: binary.LittleEndian.Uint32(h[4:]), Data: bytes.Clone(h[variableHeader+name:][:size])})
	}
	return vars
}

// Set writes a variable, and deletes a current one with the same name and vendor. If
// there is no space, the error is fault.Full, and nothing changes.
func (s *Store) Set(v Variable) error {
	if v.Attributes&authenticated != 0 || v.Attributes&NonVolatile == 0 {
		return fault.New(fault.Internal, "variable %s with attributes %#x cannot be written here", v.Name, v.Attributes)
	}
	record := newRecord(v)
	if len(record) > s.end-s.free || len(v.Data) > math.MaxInt16 { // the firmware takes no larger one
		return fault.New(fault.Full, "variable %s of %d bytes: the firmware's store has %d left", v.Name, len(v.Data), s.end-s.free)
	}
	for i, old := range s.live {
		if old.name == v.Name && old.vendor == v.Vendor {
			// As in flash, bits are only cleared.
			s.data[old.at+2] &= notDeleted
			s.live = slices.Delete(s.live, i, i+1)
			break
		}
	}
	copy(s.data[s.free:], record)
	s.live = append(s.live, stored{v.Name, v.Vendor, s.free})
	s.free = min(align4(s.free+len(record)), s.end)
	return nil
}

// newRecord returns a variable in the format of the store.
func newRecord(v Variable) []byte {
	name := text16(v.Name)
	b := make([]byte, variableHeader, variableHeader+len(name)+len(v.Data))
	binary.LittleEndian.PutUint16(b, startMark)
	b[2] = stateAdded
	binary.LittleEndian.PutUint32(b[4:], v.Attributes)
	binary.LittleEndian.PutUint32(b[36:], uint32(len(name)))
	binary.LittleEndian.PutUint32(b[40:], uint32(len(v.Data)))
	copy(b[44:], v.Vendor[:])
	return append(append(b, name...), v.Data...)
}

// Add writes the state of a VM. Its boot entries come first in the boot order, and keep
// their numbers if those are free.
func (s *Store) Add(state State) error {
	taken, order := map[uint16]bool{}, []byte(nil)
	for _, v := range s.Variables() {
		if n, ok := bootNumber(v.Name); ok && v.Vendor == Global {
			taken[n] = true
		}
		if v.Name == "BootOrder" && v.Vendor == Global {
			order = v.Data
		}
	}
	var first []byte
	for _, e := range state.Entries {
		for ; taken[e.Number]; e.Number++ {
			if len(taken) > math.MaxUint16 {
				return fault.New(fault.Full, "no number is left for boot entry %q", e.Label)
			}
		}
		taken[e.Number] = true
		first = binary.LittleEndian.AppendUint16(first, e.Number)
		if err := s.Set(Variable{bootName(e.Number), Global, NonVolatile | BootService | Runtime, e.Option()}); err != nil {
			return err
		}
	}
	for _, v := range state.Keys {
		if err := s.Set(v); err != nil {
			return err
		}
	}
	if len(first) == 0 {
		return nil
	}
	return s.Set(Variable{"BootOrder", Global, NonVolatile | BootService | Runtime, append(first, order...)})
}
