"""GPU state as people paste it: XML, CSV, the table, dmon and pmon, and whole sessions."""

import pytest

from ncclprobe.model.errors import ParseError
from ncclprobe.model.gpu import GpuLook
from ncclprobe.parse.gpu import is_gpu, parse

NOON_NS = 1_795_951_186 * 10**9  # 2026-11-29 11:19:46

XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<timestamp>Sun Nov 29 11:19:46 2026</timestamp>
	<driver_version>550.54.15</driver_version>
	<attached_gpus>2</attached_gpus>
	<gpu id="00000000:18:00.0">
		<product_name>NVIDIA H100 80GB HBM3</product_name>
		<uuid>GPU-1f0a</uuid>
		<minor_number>3</minor_number>
		<pci><pci_bus_id>00000000:18:00.0</pci_bus_id><tx_util>12 KB/s</tx_util></pci>
		<clocks_event_reasons>
			<clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
			<clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown>
		</clocks_event_reasons>
		<utilization><gpu_util>100 %</gpu_util><memory_util>0 %</memory_util></utilization>
		<ecc_errors><volatile>
			<dram_uncorrectable>2</dram_uncorrectable><sram_uncorrectable>1</sram_uncorrectable>
		</volatile></ecc_errors>
		<remapped_rows><remapped_row_failure>No</remapped_row_failure></remapped_rows>
		<temperature><gpu_temp>35 C</gpu_temp></temperature>
		<gpu_power_readings>
			<power_draw>N/A</power_draw><instant_power_draw>152.10 W</instant_power_draw>
			<current_power_limit>700.00 W</current_power_limit>
		</gpu_power_readings>
		<clocks><sm_clock>1980 MHz</sm_clock></clocks>
		<max_clocks><sm_clock>1980 MHz</sm_clock></max_clocks>
		<processes><process_info><pid>4117</pid><type>C</type></process_info></processes>
	</gpu>
	<gpu id="00000000:2A:00.0">
		<product_name>NVIDIA H100 80GB HBM3</product_name>
		<uuid>GPU-2</uuid>
		<utilization><gpu_util>GPU is lost</gpu_util></utilization>
		<power_readings><power_draw>GPU is lost</power_draw></power_readings>
	</gpu>
</nvidia_smi_log>
"""

TABLE_535 = """Sun Nov 29 11:19:46 2026
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.129.03             Driver Version: 535.129.03   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |
|                                         |                      |               MIG M. |
|=========================================+======================+======================|
|   0  NVIDIA H100 80GB HBM3          On  | 00000000:18:00.0 Off |                    3 |
| N/A   35C    P0             152W / 700W |  71234MiB / 81559MiB |    100%      Default |
|                                         |                      |             Disabled |
+-----------------------------------------+----------------------+----------------------+
|   1  NVIDIA H100 80GB HBM3          On  | 00000000:2A:00.0 Off |                  N/A |
|ERR!   ERR! ERR!             ERR! / ERR! |      GPU is lost     |    ERR!      Default |
|                                         |                      |                 ERR! |
+-----------------------------------------+----------------------+----------------------+

+---------------------------------------------------------------------------------------+
| Processes:                                                                            |
|  GPU   GI   CI        PID   Type   Process name                            GPU Memory |
|        ID   ID                                                             Usage      |
|=======================================================================================|
|    0   N/A  N/A      4117      C   python                                    71224MiB |
|    0   N/A  N/A      4200      C   python                                      512MiB |
+---------------------------------------------------------------------------------------+
"""

TABLE_470 = """+-----------------------------------------------------------------------------+
| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|                               |                      |               MIG M. |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  On   | 00000000:06:00.0 Off |                    0 |
| N/A   31C    P0    52W / 300W |      0MiB / 16160MiB |      0%      Default |
|                               |                      |                  N/A |
+-------------------------------+----------------------+----------------------+
|   1  NVIDIA A100-SXM...  Off  | 00000000:07:00.0 Off |                    0 |
| N/A   31C    P0   352W / 400W |   1000MiB / 40536MiB |     97%      Default |
|                               |                      |             Disabled |
+-------------------------------+----------------------+----------------------+
| Processes:                                                                  |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|    1     12345      C   python                                    1000MiB   |
+-----------------------------------------------------------------------------+
"""

DMON = """# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz
    0    152     35      -    100      0      0      0      0      0   2619   1980
    1     71     30      -      0      0      0      0      0      0   2619   1980
    0    153     35      -    100      0      0      0      0      0   2619   1980
    1     71     30      -      -      -      0      0      0      0   2619   1980
"""
DMON_DATED = """#Date       Time        gpu    pwr     sm    mem
#YYYYMMDD   HH:MM:SS    Idx      W      %      %
 20261129   11:19:46      0    152    100      0
"""
PMON = """# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command
# Idx           #    C/G      %      %      %      %      %      %    name
    0       4117     C     99      4      -      -      -      -    python
    0       4118     C      7      -      -      -      -      -    python
    1          -     -      -      -      -      -      -      -    -
    0       4117     C     98      4      -      -      -      -    python
"""


def looks(text: str) -> tuple[GpuLook, ...]:
    parsed = parse(text.encode())
    assert parsed.problems == ()
    assert is_gpu(text.encode())
    return parsed.records


def test_xml() -> None:
    first, second = looks(XML)
    assert first == GpuLook(
        index=0,
        uuid="GPU-1f0a",
        name="NVIDIA H100 80GB HBM3",
        util_percent=100,
        memory_util_percent=0,
        power_w=152.1,
        power_limit_w=700.0,
        sm_clock_mhz=1980,
        pids=(4117,),
        max_sm_clock_mhz=1980,
        bus_id="0000:18:00.0",
        time_ns=NOON_NS,
        clock_reasons=("hw_slowdown",),
        uncorrected_ecc=3,
        remapping_failed=False,
        temperature_c=35,
    )
    assert (second.index, second.bus_id, second.util_percent, second.power_w) == (1, "0000:2a:00.0", None, None)
    assert second.problem == "utilization.gpu: GPU is lost"


def test_xml_that_is_cut_off_keeps_the_devices_before() -> None:
    cut = XML[: XML.index("GPU-2")]
    parsed = parse(cut.encode())
    assert [look.index for look in parsed.records] == [0]
    assert parsed.problems[0].startswith("the XML is cut off or damaged")


def test_xml_of_one_device_does_not_say_which_index_it_is() -> None:
    start, end = XML.index('<gpu id="00000000:18'), XML.index('<gpu id="00000000:2A')
    (look,) = looks(XML[:start] + XML[end:])
    assert (look.index, look.bus_id) == (None, "0000:2a:00.0")


def test_several_xml_documents() -> None:
    assert [look.index for look in looks(XML + XML)] == [0, 1, 0, 1]


def test_entities_are_refused_and_a_document_type_is_never_read() -> None:
    bomb = XML.replace('"nvsmi_device_v12.dtd"', '"x" [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]').replace("GPU-2", "&b;")
    with pytest.raises(ParseError, match="entities"):
        parse(bomb.encode())
    parsed = parse(XML.replace("GPU-2", "&undefined;").encode())
    assert len(parsed.records) == 1
    assert len(parsed.problems) == 1


@pytest.mark.parametrize("text", [TABLE_535, f"ann@node01:~$ nvidia-smi\n{TABLE_535}"], ids=["bare", "session"])
def test_the_table(text: str) -> None:
    first, second = looks(text)
    assert (first.index, first.name, first.bus_id) == (0, "NVIDIA H100 80GB HBM3", "0000:18:00.0")
    assert (first.util_percent, first.power_w, first.power_limit_w) == (100, 152.0, 700.0)
    assert (first.temperature_c, first.uncorrected_ecc, first.pids) == (35, 3, (4117, 4200))
    assert (first.time_ns, first.problem) == (NOON_NS, "")
    assert first.host == ("node01" if "node01" in text else None)
    assert (second.index, second.bus_id, second.util_percent, second.power_w) == (1, "0000:2a:00.0", None, None)
    assert "ERR!" in second.problem


def test_the_table_of_older_drivers() -> None:
    first, second = looks(TABLE_470)
    assert (first.name, first.util_percent, first.power_w, first.pids) == ("Tesla V100-SXM2", 0, 52.0, ())
    assert (second.util_percent, second.power_w, second.power_limit_w, second.pids) == (97, 352.0, 400.0, (12345,))


def test_tables_one_after_the_other_keep_their_processes_apart() -> None:
    second = TABLE_470.replace("12345", "12346")
    assert [look.pids for look in looks(TABLE_470 + second)] == [(), (12345,), (), (12346,)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Unable to determine the device handle for GPU 0000:9A:00.0: Unknown Error", "Unknown Error"),
        ("Unable to determine the device handle for GPU0000:9A:00.0: Unknown Error", "Unknown Error"),
        (
            "Unable to determine the device handle for GPU 0000:9A:00.0: GPU is lost.  Reboot the system to recover",
            "GPU is lost.  Reboot the system to recover",
        ),
    ],
)
def test_a_device_that_cannot_be_opened(line: str, why: str) -> None:
    (look,) = looks(f"$ nvidia-smi\n{line}\n")
    assert (look.index, look.bus_id, look.problem) == (None, "0000:9a:00.0", why)


def test_dmon() -> None:
    found = looks(DMON)
    assert [(look.index, look.util_percent, look.power_w, look.memory_util_percent) for look in found] == [
        (0, 100, 152.0, 0),
        (1, 0, 71.0, 0),
        (0, 100, 153.0, 0),
        (1, None, 71.0, None),
    ]
    assert (found[0].sm_clock_mhz, found[0].temperature_c) == (1980, 35)
    (dated,) = looks(DMON_DATED)
    assert (dated.time_ns, dated.util_percent) == (NOON_NS, 100)


def test_pmon_has_a_row_a_process() -> None:
    assert [(look.index, look.util_percent, look.pids) for look in looks(PMON)] == [
        (0, 99, (4117, 4118)),
        (1, None, ()),
        (0, 98, (4117,)),
    ]


HEADER = (
    "timestamp, host, index, pci.bus_id, utilization.gpu [%], utilization.memory [%], power.draw [W],"
    " enforced.power.limit [W], clocks.sm [MHz], clocks_throttle_reasons.active\n"
)
ROW = (
    "2026/11/29 11:19:46.100, node0{}, {}, 0000000F:01:00.0, {}, 0 %, 71.30 W, 140.00 W, 2405 MHz, 0x0000000000000009\n"
)


def test_csv_of_two_hosts_with_a_header() -> None:
    first, second = looks(HEADER + ROW.format(1, 0, "100 %") + ROW.format(2, 7, "[N/A]"))
    assert (first.host, first.index, first.bus_id) == ("node01", 0, "000f:01:00.0")
    assert (first.util_percent, first.power_w, first.power_limit_w, first.sm_clock_mhz) == (100, 71.3, 140.0, 2405)
    assert (first.time_ns, first.clock_reasons) == (NOON_NS + 100_000_000, ("gpu_idle", "hw_slowdown"))
    assert (second.host, second.index, second.util_percent, second.problem) == ("node02", 7, None, "")


def test_of_a_file_that_grew_for_days_the_end_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncclprobe.parse.gpu.MAX_LINES", 3)
    parsed = parse((HEADER + "".join(ROW.format(1, index, "100 %") for index in range(9))).encode())
    assert [look.index for look in parsed.records] == [6, 7, 8]
    assert parsed.problems == ("it has 10 lines; only the last 3 were looked at",)


def test_csv_of_a_lost_device() -> None:
    header = "index, name, utilization.gpu [%], power.draw [W]\n"
    lost, sensor, sick = looks(
        f"{header}3, NVIDIA H100, [GPU is lost], [GPU is lost]\n4, NVIDIA H100, 7 %, [Unknown Error]\n"
        "5, NVIDIA H100, [Unknown Error], [Unknown Error]\n"
    )
    assert (lost.index, lost.problem, lost.power_w) == (3, "utilization.gpu: GPU is lost", None)
    assert (sensor.problem, sensor.util_percent, sensor.power_w) == ("", 7, None)
    assert sick.problem == "utilization.gpu, power.draw: Unknown Error"


def test_csv_without_a_header_where_the_command_is_shown() -> None:
    text = (
        "$ nvidia-smi --query-gpu=index,utilization.gpu,utilization.memory,power.draw --format=csv,noheader,nounits\n"
    )
    (look,) = looks(f"{text}5, 100, 1, 221.40\n")
    assert (look.index, look.util_percent, look.memory_util_percent, look.power_w) == (5, 100, 1, 221.4)


def test_csv_without_a_header_where_units_tell() -> None:
    (look,) = looks("2, GPU-51c0aa1e-1f0a, 100 %, 221.40 W\n")
    assert (look.index, look.uuid, look.util_percent, look.power_w) == (2, "GPU-51c0aa1e-1f0a", 100, 221.4)


def test_csv_without_a_header_that_could_mean_two_things() -> None:
    parsed = parse(b"0, 100 %, 0 %, 221.40 W\n1, 100 %, 0 %, 220.10 W\n")
    assert parsed.records == ()
    assert "without a header" in parsed.problems[0]


def test_processes_of_a_second_query_are_joined_by_uuid() -> None:
    (look,) = looks(
        "index, uuid, utilization.gpu [%]\n0, GPU-1, 100 %\ngpu_uuid, pid, process_name\nGPU-1, 4117, python\n"
    )
    assert look.pids == (4117,)


def test_hosts_before_each_line() -> None:
    rows = "".join(f"node0{host}: {host}, 100 %, 50.00 W\n" for host in (1, 2))
    assert [(look.host, look.index) for look in looks(rows)] == [("node01", 1), ("node02", 2)]
    tables = "".join(f"node07: {line}\n" for line in TABLE_470.splitlines())
    assert [look.host for look in looks(tables)] == ["node07", "node07"]


def test_a_session_with_other_commands() -> None:
    text = (
        "$ uname -a\nLinux node02 6.8.0-1031-nvidia #34-Ubuntu SMP aarch64 GNU/Linux\n$ lscpu | head\nByte Order: x\n"
        "CPU(s): 144\nVendor ID: ARM\n$ nvidia-smi --query-gpu=index,utilization.gpu,power.draw --format=csv,noheader\n"
        "0, 100 %, 221.40 W\n$ dmesg | grep -ic xid\n0\n"
    )
    (look,) = parse(text.encode()).records
    assert (look.host, look.index, look.util_percent, look.power_w) == ("node02", 0, 100, 221.4)
    assert not is_gpu(text.encode())


@pytest.mark.parametrize(
    "line",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "Failed to initialize NVML: Driver/library version mismatch",
        'Field "clocks_event_reasons.active" is not a valid field to query.',
        "No devices were found",
    ],
)
def test_what_nvidia_smi_answers_instead(line: str) -> None:
    parsed = parse(f"$ nvidia-smi\n{line}\n".encode())
    assert parsed.records == ()
    assert parsed.problems == (f"nvidia-smi answered: {line}",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "a, b, c",
        "[rank0]: step 1, loss 2.0",
        "| a | b |",
        '{"processes": []}',
        "# gpus in this job: 8\n1 2 3",
    ],
)
def test_what_is_no_gpu_state(text: str) -> None:
    assert not is_gpu(text.encode())
    with pytest.raises(ParseError):
        parse(text.encode())


def test_a_training_log_with_a_table_in_it_is_a_log() -> None:
    assert not is_gpu(("[rank0]: step 1\n" * 50 + TABLE_470).encode())


def test_the_probe_s_own_json_in_full() -> None:
    text = (
        '{"driver": "550", "gpus": [{"index": 1, "bus_id": "00000000:9B:00.0", "clock_reasons": 9, "moved_bytes": 5,'
        ' "uncorrected_ecc": 0, "remapping_failed": true, "temperature_c": 40, "problem": "lost", "time_ns": 3}]}'
    )
    (look,) = looks(text)
    assert (look.bus_id, look.clock_reasons, look.moved_bytes) == ("0000:9b:00.0", ("gpu_idle", "hw_slowdown"), 5)
    assert (look.remapping_failed, look.temperature_c, look.problem, look.time_ns) == (True, 40, "lost", 3)
