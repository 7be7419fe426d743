"""Asks a server for structured output and tool calls by OpenAI's client, LangChain and litellm.

python clients.py BASE_URL json|tools
"""
import os
import sys
from typing import Literal

os.environ["OPENAI_API_KEY"] = "none"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from langchain_openai import ChatOpenAI
from openai import OpenAI
from pydantic import BaseModel

base, what = sys.argv[1:]
client = OpenAI(base_url=base, api_key="none")
model = client.models.list().data[0].id


class Forecast(BaseModel):
    """Asks for the weather."""

    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


messages = [{"role": "user", "content": "Is it sunny?"}]
asked = {"messages": messages, "max_tokens": 200, "temperature": 1, "seed": 1}
chain = ChatOpenAI(base_url=base, api_key="none", model=model, temperature=1, max_tokens=200, seed=1)
if what == "json":
    parsed = client.chat.completions.parse(model=model, response_format=Forecast, **asked)
    assert isinstance(parsed.choices[0].message.parsed, Forecast)
    with client.chat.completions.stream(model=model, response_format=Forecast, **asked) as stream:
        for _ in stream:
            pass
    assert stream.get_final_completion().choices[0].message.parsed == parsed.choices[0].message.parsed
    assert isinstance(chain.with_structured_output(Forecast, method="json_schema").invoke(messages), Forecast)
    answer = litellm.completion(model=f"openai/{model}", api_base=base, api_key="none",
                                response_format=Forecast, **asked)
    Forecast.model_validate_json(answer.choices[0].message.content)
else:
    [call] = chain.bind_tools([Forecast], tool_choice="Forecast").invoke(messages).tool_calls
    Forecast.model_validate(call["args"])
    assert isinstance(chain.with_structured_output(Forecast, method="function_calling").invoke(messages), Forecast)
    chunks = chain.bind_tools([Forecast], tool_choice="required").stream(messages)
    assert sum(len(chunk.tool_call_chunks) for chunk in chunks) > 2
print("ok")
