"""Prints, for every packet of a capture, its opcode, its ICRC, and the ICRC that Scapy makes for it."""

import sys

from scapy.contrib.roce import BTH
from scapy.utils import PcapReader

with PcapReader(sys.argv[1]) as capture:
    for packet in capture:
        transport = packet[BTH]
        print(transport.opcode, f"{transport.icrc:08x}", transport.compute_icrc(None).hex())
