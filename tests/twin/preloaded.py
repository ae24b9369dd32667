"""What the process that forks workers imports (`forks`): all but the runtime client.

That client reads the address of its API when it is imported.
"""

import gc
import importlib
import pkgutil

import tidings.aws
import tidings.core
import tidings.http
from tests.twin.environment import REGION
from tidings.aws import clients, stage

for _package in (tidings.aws, tidings.core, tidings.http):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        importlib.import_module(_module.name)
for _service in ("dynamodb", "lambda", "s3"):
    clients.session().create_client(_service, region_name=REGION)
stage.forget()
gc.freeze()
