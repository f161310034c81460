from pathlib import Path

from rookhold_exec.executor import Executor
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import ExecutorContract
from rookhold_exec.testing.harness import Harness


class TestOff(ExecutorContract):
    directory: Path

    @classmethod
    def make(cls, directory: Path) -> Executor:
        cls.directory = directory
        return choose_backend("off", ExecSettings(jobs_root=str(directory)))

    def test_it_claims_the_wall_limit_and_nothing_else(self, harness: Harness) -> None:
        provenance = harness.run("python", "print(1)").report.provenance
        assert provenance.controls == ()
        enforced = provenance.limit_enforcement
        assert enforced.wall
        assert not any((enforced.cpu, enforced.mem, enforced.pids, enforced.file))
        assert provenance.networking == "host"

    def test_no_directory_of_a_job_is_left(self, harness: Harness) -> None:
        code = (
            "import os\n"
            "for n in range(300):\n"
            "    os.mkdir('d'); os.chdir('d')\n"
            "open('deep', 'w').close()\n"
        )
        assert harness.run("python", code).report.exit_code == 0
        assert list(self.directory.iterdir()) == []
