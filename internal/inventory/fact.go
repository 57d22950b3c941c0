package inventory

// A Fact is something of a VM that a source can be asked for alone, of all VMs at once. To
// describe VMs whole takes it much longer.
type Fact string

// Facts.
const (
	NoFact       Fact = ""         // known of a described VM only
	OnRoll       Fact = "roll"     // known of each VM that is listed: what it is called, where it is
	FactPower    Fact = "power"    // Power
	FactGuest    Fact = "guest"    // GuestID, GuestName
	FactHardware Fact = "hardware" // CPUs, MemoryMiB
	FactFirmware Fact = "firmware" // Firmware
	FactTools    Fact = "tools"    // ToolsRunning
	FactTracking Fact = "tracking" // ChangeTracking
)
